"""Celery's worker, beat and Flower in processes of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from tests.support.workers import ROOT, eventually

APP = "tests.integration.celery.app"


def environment(broker: str, **more: str) -> dict[str, str]:
    backend = broker.removeprefix("reliq+").replace("/0", "/1")
    path = os.pathsep.join([str(ROOT), str(ROOT / "api"), str(ROOT / "monitor")])
    return {**os.environ, "PYTHONPATH": path, "TEST_BROKER": broker, "TEST_BACKEND": backend, **more}


def send(client: Any, name: str, *arguments: Any, **options: Any) -> Any:
    return client.send_task(f"{APP}.{name}", arguments, **options)


def signature(client: Any, name: str, *arguments: Any, **options: Any) -> Any:
    return client.signature(f"{APP}.{name}", args=arguments, **options)


class Process:
    """A `celery` command, its own process group, and what it has logged."""

    def __init__(self, broker: str, *arguments: str, app: str = APP, **more: str) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `end`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", app, *arguments],
            env=environment(broker, **more), cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def until_logged(self, text: str, timeout: float = 40) -> None:
        eventually(lambda: text in self.log or self.process.poll() is not None, timeout, what=f"{text!r} in the log")
        assert text in self.log, self.log[-3000:]

    @property
    def children(self) -> list[int]:
        """Its pool processes; its guard is none."""
        import psutil

        every = psutil.Process(self.process.pid).children()
        return [one.pid for one in every if "reliq.contrib.guard" not in one.cmdline()]

    def end(self) -> None:
        """Stop it as an operator does, and whatever is left of its group."""
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._log.close()


@contextlib.contextmanager
def working(broker: str, *arguments: str, name: str = "one", **more: Any) -> Iterator[Process]:
    """A Celery worker, ready for tasks."""
    worker = Process(broker, "worker", "-l", "INFO", "-n", f"{name}@test", *(arguments or ("-c", "2")), **more)
    try:
        worker.until_logged(f"{name}@test ready")
        yield worker
    finally:
        worker.end()
