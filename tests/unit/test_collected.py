"""The workers of pytest-xdist that are forked from a process which has imported the tests."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.support import warm

CONFTEST = """
from tests.support import collected

def pytest_configure(config):
    if config.getoption("numprocesses") and not hasattr(config, "workerinput"):
        collected.prepare(config)
"""
TESTS = """
    import os, sys

    imported_by = os.getpid()
    os.environ["SET_BY_A_MODULE"] = "yes"
    if {ends} and "collected" in sys.argv[0]:
        os._exit(1)

    def test_one():
        assert (imported_by != os.getpid()) is {forked}
        assert os.environ["SET_BY_A_MODULE"] == "yes"

    def test_that_fails():
        assert not "it is told"
"""


@pytest.mark.skipif(not warm.possible({}), reason="no forks here")
@pytest.mark.parametrize("ends", [False, True])
def test_workers_run_the_tests_also_where_that_process_has_ended(tmp_path, ends):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS.format(ends=ends, forked=not ends)))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # others take most of the time of the start
        check=False, capture_output=True, text=True, cwd=warm.ROOT, timeout=120,
    )  # fmt: skip
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "it is told" in ran.stdout
    assert ran.returncode == 1
