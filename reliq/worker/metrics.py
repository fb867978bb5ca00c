"""The metrics of `reliq worker`: of one process, or of several that share their measurements with their parent."""

import contextlib
import fcntl
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from reliq.extras import missing_extra
from reliq.model.handlers import Handlers
from reliq.observability.histograms import Measurements
from reliq.transport.store import Store
from reliq.worker import Options

log = logging.getLogger("reliq.worker")

_QUEUES = "queues"  #: file: the queues that the parent measures


class Metering:
    """The metrics of a worker with one or several processes. A context: leaving it stops serving.

    `own`: the measurements of this process: of its handlers if it is the only one, else of its monitor.
    """

    def __init__(self, handlers: Handlers, options: Options, processes: int) -> None:
        self.own = Measurements()
        self._processes = processes
        self._slots = {
            one.queue: processes * (options.concurrency if one.is_async else options.threads) for one in handlers
        }
        self._folder: str | None = None
        self._kept = contextlib.ExitStack()
        self._server: Any = None

    @property
    def folder(self) -> str | None:
        """The folder in which the processes share their measurements, if they are served."""
        return self._folder

    def serve(self, store: Store, port: int, host: str, monitor: Any = None) -> None:
        """Serve /metrics, and make the processes that start from now on measure, in `folder`.

        `monitor`: returns the state of the monitor that runs in this process.
        """
        every = [self.own]
        if self._processes > 1:
            self._folder = folder = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="reliq-metrics-"))
            self._kept.enter_context(_locked(folder))
            (Path(folder) / _QUEUES).write_bytes(msgspec.json.encode([*self._slots]))
            every += [_shared(folder, place, self._slots) for place in range(self._processes)]
        self._server = exporter_class()(store, every, slots=self._slots, monitor=monitor).serve(port, host)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._server is not None:
            self._server.stop()
        self._kept.close()


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock the folder: systemd removes what is old from /tmp, but not below a lock. Writes by mmap make nothing new."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH)
        yield
    finally:
        os.close(opened)


def of_child(folder: str, place: int) -> Measurements:
    """Return the measurements of the worker process at this place, shared with its parent in this folder.

    What is shared are the queues of the parent, whose code may be older. If the folder is gone, nothing is.
    """
    try:
        return _shared(folder, place, msgspec.json.decode((Path(folder) / _QUEUES).read_bytes(), type=list[str]))
    except OSError as error:
        log.warning("not_measured error=%s: the metrics of this process are lost until its parent restarts", error)
        return Measurements()


def _shared(folder: str, place: int, queues: Iterable[str]) -> Measurements:
    return Measurements.shared(Path(folder) / str(place), queues)


def exporter_class() -> Any:
    """Return the class Exporter; raises MissingExtra, which says what to install."""
    try:
        from reliq.observability.prometheus import Exporter
    except ImportError as error:
        raise missing_extra("--metrics-port", "monitor", error) from None
    return Exporter
