"""A signal while a service starts: it ends in order, with status 0 after SIGTERM and 130 after SIGINT, at whatever
stage."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from reliq.runtime.startup import is_service, signals_held_back
from tests.support.workers import eventually, process

HANDLER = """
import reliq
app = reliq.Reliq()

@app.handler("q")
def work(message):
    pass
"""
IMPORTING = """
import pathlib, sys, time
if "--processes" not in sys.argv or not CHILDREN_ONLY:
    pathlib.Path("importing").touch()
    try:
        time.sleep(60)
    except BaseException:
        pathlib.Path("raised").touch()
        raise
"""


def write_shop(folder, children_only=False):
    (folder / "shop.py").write_text(f"CHILDREN_ONLY = {children_only}\n{IMPORTING}\n{HANDLER}")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_while_the_application_is_imported(app, tmp_path, number, status):
    """No exception is raised in what is imported: modules may swallow it, and C code may crash on it."""
    write_shop(tmp_path)
    with process("worker", "shop", folder=tmp_path, fresh=True, RELIQ_URL=app.url) as child:
        eventually((tmp_path / "importing").exists)
        child.send_signal(number)
        assert child.wait(60) == status
        assert b"Traceback" not in child.stderr.read()
    assert not (tmp_path / "raised").exists()


@pytest.mark.parametrize(
    "command", [("worker", "shop"), ("worker", "shop", "--processes", "2"), ("monitor",), ("api",), ("dev",)]
)
def test_a_signal_that_waits_for_the_first_line_of_reliq(app, tmp_path, command):
    (tmp_path / "shop.py").write_text(HANDLER)
    with signals_held_back(), process(*command, folder=tmp_path, fresh=True, RELIQ_URL=app.url) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert child.stderr.read() == b""


def test_while_the_http_service_is_made():
    """No exception is raised there either: it would be in the middle of what pydantic and msgspec do."""
    code = textwrap.dedent("""
        import signal
        from reliq.runtime import startup
        from reliq_api import server
        from reliq_api.settings import Settings

        def make(settings):
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                print("an exception was raised")

        startup.begin()
        server.server_of = make
        server.serve(Settings(port=0))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_while_a_supervisors_children_import(app, tmp_path):
    write_shop(tmp_path, children_only=True)
    with process("worker", "shop", "--processes", "2", folder=tmp_path, fresh=True, RELIQ_URL=app.url) as parent:
        eventually((tmp_path / "importing").exists)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0
        printed = parent.stderr.read()
    assert b"died" not in printed
    assert b"Traceback" not in printed


@pytest.mark.parametrize("milliseconds", range(60, 600, 60))
def test_a_signal_at_any_moment_of_the_start_ends_the_service_in_order(app, tmp_path, milliseconds):
    """The signal waits for the first line of reliq at the earliest: before it, Python itself would end."""
    (tmp_path / "shop.py").write_text(HANDLER)
    with (
        signals_held_back(),
        process("worker", "shop", "--processes", "2", folder=tmp_path, fresh=True, RELIQ_URL=app.url) as child,
    ):
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(milliseconds / 1000)
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        printed = child.stderr.read()
    assert b"died" not in printed
    assert b"Traceback" not in printed
    assert app.queue("q").stats().consumers == 0


INTERRUPTED = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.HANDLER)

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "WHERE":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""
SCRIPT = "import sys; from reliq.cli.main import entry; sys.exit(entry())"


@pytest.mark.parametrize("where", ["reliq._version", "msgspec", "reliq.cli.dead", "reliq_api.settings"])
@pytest.mark.parametrize("arguments", [("queue", "stats"), ("top",), ()])
def test_ctrl_c_while_a_command_imports_ends_it_without_a_traceback(app, tmp_path, where, arguments):
    (tmp_path / "sitecustomize.py").write_text(
        INTERRUPTED.replace("WHERE", where).replace("HANDLER", "default_int_handler")
    )
    (tmp_path / "reliq").write_text(SCRIPT)  # as the one that pip installs
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RELIQ_URL": app.url}
    for program in (["-m", "reliq"], [str(tmp_path / "reliq")]):
        command = [sys.executable, *program, *arguments]
        done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_command_that_ignores_ctrl_c_still_does(app, tmp_path):
    """As behind `nohup`, or in the background of a script."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED.replace("WHERE", "msgspec").replace("HANDLER", "SIG_IGN"))
    command = ["sh", "-c", f"trap '' INT; exec {sys.executable} -m reliq queue stats"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "RELIQ_URL": app.url}
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


def test_while_it_waits_for_redis(tmp_path):
    (tmp_path / "shop.py").write_text(HANDLER)
    with process("worker", "shop", folder=tmp_path, fresh=True, RELIQ_URL="redis://127.0.0.1:1/0") as child:
        eventually(lambda: b"waiting for Redis" in child.stderr.readline())
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0


def test_a_program_that_only_imports_reliq_keeps_its_signals():
    code = "import signal; before = signal.getsignal(15); import reliq; print(signal.getsignal(15) == before)"
    done = subprocess.run(
        [sys.executable, "-c", code, "worker"], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("arguments", "interpreter", "expected"),
    [
        (["-m", "worker", "shop"], ["python", "-m", "reliq", "worker", "shop"], True),
        (["-m", "worker", "shop"], ["python", "-X", "dev", "-m", "reliq", "worker", "shop"], True),
        (["/venv/bin/reliq", "api"], ["python", "/venv/bin/reliq", "api"], True),
        (["-m", "send", "q"], ["python", "-m", "reliq", "send", "q"], False),
        (["-m", "worker"], ["python", "-m", "celery", "worker"], False),
        (["/srv/deploy.py", "worker"], ["python", "/srv/deploy.py", "worker"], False),
        (["-m"], ["python", "-m", "reliq"], False),
        ([""], ["python"], False),
        ([], [], False),
    ],
)
def test_only_services_are_recognized(arguments, interpreter, expected):
    assert is_service(arguments, interpreter) is expected


def test_reliq_imports_what_handles_the_signals_before_all_others():
    code = "import sys, reliq; print(*(name for name in sys.modules if name.startswith('reliq.')))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert names[:2] == ["reliq.runtime", "reliq.runtime.startup"]
