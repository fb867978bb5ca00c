"""Signals that stop a service: their handler may interrupt code that holds any lock."""

import subprocess
import sys
import textwrap

import pytest

STOPPED = {
    "stop_event": """
        from reliq.cli.options import stop_event

        stopping = stop_event()
        lock, stopped = stopping._cond, stopping.is_set
    """,
    "worker": """
        import reliq
        from reliq.transport.store import Store
        from reliq.worker import Options, Worker

        app = reliq.Reliq("redis://127.0.0.1:1/0")
        app.handler("q")(print)
        worker = Worker(Store(app.url), app.handlers, Options())
        worker.stop_on_signals()
        lock, stopped = worker._wake._cond, lambda: worker._stops == 1 and worker._wake.is_set()
    """,
    "supervisor": """
        from reliq.worker.supervisor import Supervisor

        supervisor = Supervisor(print, 1, 1.0, print)
        supervisor.stop_on_signals()
        lock, stopped = supervisor._wake._cond, lambda: supervisor._stops == 1 and supervisor._wake.is_set()
    """,
}
INTERRUPTED = """
        import signal

        from tests.support.workers import eventually

        with lock:  # as the thread has it that waits for the stop, for a moment
            signal.raise_signal(signal.SIGTERM)
        eventually(stopped)
        print("stopped")
"""


@pytest.mark.parametrize("program", STOPPED.values(), ids=STOPPED)
def test_a_signal_stops_a_service_whatever_lock_it_interrupts(program):
    text = textwrap.dedent(program) + textwrap.dedent(INTERRUPTED)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.returncode) == ("stopped\n", 0), done.stderr
