"""`reliq worker --reload`: the worker starts again when a Python file of the current folder changes."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reliq.cli.child_settings import ChildSettings
from reliq.extras import missing_extra
from reliq.model.keys import new_owner
from reliq.worker.supervisor import Child

log = logging.getLogger("reliq.reload")

_AFTER_GRACE = 5.0  #: seconds after the grace until the worker is killed
_LOOK_EVERY = 0.05
_WATCH_MS = 1000  #: between two looks at the worker

Changes = Iterator[set[tuple[Any, str]]]


class Stops:
    """How often this is to stop: once, the worker ends within its grace; twice, at once."""

    def __init__(self) -> None:
        self.once = threading.Event()
        self.twice = threading.Event()

    def stop(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()


def run_again_and_again(application: str, options: dict[str, Any], grace: float, stops: Stops) -> int:
    """Run `reliq worker` with these options until it is to stop, each time with the code as it is then.

    A worker that ended by itself, because its code does not import, starts again with the next change.
    """
    changes = _watch()(Path.cwd(), stops.once)
    worker, has_ended = _start(application, options), False
    for changed in changes:
        if not changed:
            if worker.poll() is not None and not has_ended:
                log.warning("ended status=%d: the worker starts again with the next change", worker.process.returncode)
                has_ended = True
            continue
        files = sorted({Path(path).name for _, path in changed})
        log.info("changed: %s; the worker starts again", ", ".join(files[:5]))
        stop_worker(worker, grace, stops.twice)
        worker, has_ended = _start(application, options), False
    return stop_worker(worker, grace, stops.twice)


def _watch() -> Callable[[Path, threading.Event], Changes]:
    try:
        from watchfiles import PythonFilter, watch
    except ImportError as error:
        raise missing_extra("--reload", "reload", error) from None
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    return lambda folder, stopping: watch(
        folder, watch_filter=PythonFilter(), stop_event=stopping, rust_timeout=_WATCH_MS, yield_on_timeout=True
    )


def _start(application: str, options: dict[str, Any]) -> Child:
    settings = ChildSettings(new_owner(), options=options)
    return Child(settings.owner, [sys.executable, "-m", "reliq", "worker", application], settings.environment())


def stop_worker(worker: Child, grace: float, hurried: threading.Event) -> int:
    """Shut the worker down cleanly, at once if this is `hurried`; kill it after its grace; return its exit status."""
    worker.signal(signal.SIGTERM)
    until, is_told = time.monotonic() + grace + _AFTER_GRACE, False
    while (status := worker.poll()) is None:
        if hurried.is_set() and not is_told:
            is_told = True
            worker.signal(signal.SIGTERM)
        if time.monotonic() > until:
            worker.signal(signal.SIGKILL)
        time.sleep(_LOOK_EVERY)
    if worker.process.stdin is not None:
        worker.process.stdin.close()
    return status
