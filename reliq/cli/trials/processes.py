"""Worker processes to kill and pause, for the demo, `reliq chaos` and tests."""

import contextlib
import functools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from reliq.cli.child_settings import ChildSettings
from reliq.errors import ReliqError
from reliq.model.keys import new_owner


class WorkerProcess:
    """A `reliq worker` process with a chosen id, so that its messages can be found after its death."""

    def __init__(self, url: str, application: str, log: Path, *options: str, **environment: str) -> None:
        self.owner = new_owner()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "reliq", "worker", application, "--quiet", *options],
                env={**ChildSettings(self.owner).environment(), "RELIQ_URL": url, **environment},
                stdin=subprocess.PIPE, stderr=errors, start_new_session=True,
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the process with SIGKILL and wait for its end."""
        self.process.kill()
        self.process.wait()
        self._close()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Shut the process down cleanly, whatever its state."""
        self.ask_to_stop()
        self.wait()

    def wait(self) -> None:
        """Wait for the end of the process; a second SIGTERM would end it at once."""
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close()

    def ask_to_stop(self) -> None:
        if not self.ended:
            self.go_on()
            self.process.terminate()

    def _close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


class Workers(list[WorkerProcess]):
    """The workers of a trial, which are started alike."""

    def __init__(self, url: str, application: str, log: Path, *options: str, **environment: str) -> None:
        super().__init__()
        self._log = log
        self._new = functools.partial(WorkerProcess, url, application, log, *options, **environment)

    def start(self) -> None:
        self.append(self._new())

    def check_running(self) -> None:
        """Raise ReliqError, with the last line of their log, if one of the workers has ended."""
        if any(worker.ended for worker in self):
            said = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ReliqError(f"a worker ended unexpectedly: {said or 'without output'}")

    def stop(self) -> None:
        """Stop all workers at the same time."""
        for worker in self:
            worker.ask_to_stop()
        for worker in self:
            worker.wait()


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM raise like Ctrl-C, so that everything that was started is stopped."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
