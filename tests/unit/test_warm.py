"""A `reliq` command that is forked for a test is a process like one that is started."""

import json
import os
import signal
import textwrap

import pytest

from tests.support import warm
from tests.support.workers import process

TELLS = textwrap.dedent("""
    import json, os, pathlib, random, resource, signal, sys, threading

    import reliq

    files = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            files[number] = os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
        except OSError:
            pass  # that of the folder itself
    streams = {name: getattr(sys, name) for name in ("stdin", "stdout", "stderr")}
    seen = {
        "parent": os.getppid(), "leads its session": os.getsid(0) == os.getpid(), "folder": os.getcwd(),
        "files": files, "environment": dict(os.environ), "arguments": sys.argv, "given": sys.orig_argv,
        "packages": [one for one in sys.path if "reliq" in one or one in (os.getcwd(), "")], "first": sys.path[0],
        "threads": threading.active_count(), "held back": [int(one) for one in signal.pthread_sigmask(0, [])],
        "handled": [str(signal.getsignal(one)).partition(" at ")[0] for one in signal.Signals],
        "streams": [[one.encoding, one.errors, one.line_buffering, one.write_through] for one in streams.values()],
    }
    own = [os.getpid(), random.random(), reliq.forks.mark()[1]]
    pathlib.Path("seen").write_text(json.dumps([seen, own]))
    print("printed")
    print("told", file=sys.stderr)
    raise RuntimeError("ends it")
""")


@pytest.mark.skipif(not warm.possible({}), reason="no forks here")
def test_a_forked_command_sees_what_a_started_one_sees(tmp_path):
    (tmp_path / "tells.py").write_text(TELLS)
    found, printed = [], []
    for fresh in (True, False, False):
        with process("worker", "tells:app", folder=tmp_path, fresh=fresh, RELIQ_URL="redis://127.0.0.1:1") as child:
            printed.append((*child.communicate(timeout=60), child.returncode))
            found.append(json.loads((tmp_path / "seen").read_text()))
            assert found[-1][0]["parent"] == os.getpid()
            assert found[-1][1][::2] == [child.pid, child.pid]
    started, forked, another = (seen for seen, _ in found)
    assert started == forked == another
    assert printed[0] == printed[1] == printed[2]
    assert printed[0][0] == b"printed\n"
    assert len({chance for _, (_, chance, _) in found}) == 3


def test_a_forked_command_dies_of_a_signal(tmp_path):
    with process("monitor", folder=tmp_path, RELIQ_URL="redis://127.0.0.1:1") as child:
        child.send_signal(signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL


def test_what_only_a_starting_python_reads_is_not_forked():
    assert not warm.possible({"PYTHONUNBUFFERED": "1"})
    assert not warm.possible({"LC_ALL": "C"})
