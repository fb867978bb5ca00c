"""`make test-all`: every target that tests something, and one table of what came of them."""

import re
import subprocess
import sys

import pytest

from tools import test_all
from tools.test_all import ROOT, TARGETS, counts

MAKE = """
import sys
print({"good": "....s [100%]\\n4 passed, 1 skipped in 0.5s",
       "red": "F.\\n1 failed, 1 passed, 2 errors in 63.00s (0:01:03)",
       "seeds": "100 seeds, 9000 calls, 20 s on 2 cores: 3 failed",
       "mutants": "50 mutants, 48 found, 2 not found"}.get(sys.argv[1], "no such rule"))
sys.exit(0 if sys.argv[1] == "good" else 2)
"""


TESTING = ("combine", "faults-mutants", "mutants", "simulate")


def test_test_all_runs_every_target_that_tests_something():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.* ## ", makefile, re.MULTILINE))
    tests = {name for name in targets if name.startswith("test") or name in TESTING}
    assert set(TARGETS) == tests - {"test-all"}


def test_a_target_that_fails_does_not_stop_the_others_and_the_table_has_all(tmp_path, capsys):
    status = test_all.main(["good", "red", "gone", "seeds", "mutants"], [sys.executable, "-c", MAKE], tmp_path)
    table = capsys.readouterr().out.rpartition("\n\n")[2].splitlines()
    assert status == 1
    assert [line.split()[:-1] for line in table] == [
        ["target", "passed", "failed", "skipped"],
        ["good", "4", "0", "1"],
        ["red", "1", "3", "0"],
        ["gone", "0", "exit", "2", "0"],
        ["seeds", "97", "3", "0"],
        ["mutants", "48", "2", "0"],
    ]
    assert (tmp_path / "gone.log").read_text() == "no such rule\n"


def test_when_all_is_well_its_status_says_so(tmp_path, capsys):
    assert test_all.main(["good"], [sys.executable, "-c", MAKE], tmp_path) == 0


def test_the_closing_lines_of_several_runs_are_added_up():
    printed = ["== 3 passed, 1 rerun in 2.00s ==", "| 4.1.0 | 3 passed | 2 s |", "5 passed, 2 deselected in 1.00s"]
    assert counts(printed) == (8, 0, 0)


@pytest.mark.parametrize(("commit", "again"), [("abc", ["red"]), ("def", ["good", "red"]), (None, ["good", "red"])])
def test_interrupted_it_goes_on_where_it_was_as_long_as_nothing_changes(commit, again, tmp_path, capsys):
    assert test_all.main(["good"], [sys.executable, "-c", MAKE], tmp_path, commit="abc") == 0
    capsys.readouterr()
    test_all.main(["good", "red"], [sys.executable, "-c", MAKE], tmp_path, commit=commit)
    printed = capsys.readouterr().out
    assert re.findall(r"^make (\w+)$", printed, re.MULTILINE) == again
    assert re.search(r"^good +4 +0 +1 ", printed, re.MULTILINE)


def test_a_changed_checkout_is_at_no_commit(tmp_path):
    def git(*words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *words], cwd=tmp_path, check=True)

    assert test_all.state(tmp_path) is None
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "one")
    assert re.fullmatch("[0-9a-f]{40}", test_all.state(tmp_path) or "")
    (tmp_path / "new.py").touch()
    assert test_all.state(tmp_path) is None
