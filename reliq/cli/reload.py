"""`reliq worker --reload`: the worker starts again when a Python file of the current folder changes."""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reliq.cli.child_settings import ChildSettings
from reliq.extras import missing_extra
from reliq.model.keys import new_owner
from reliq.worker.supervisor import Child

log = logging.getLogger("reliq.reload")

_AFTER_GRACE = 5.0  #: seconds after the grace until the worker is killed

Changes = Iterator[set[tuple[Any, str]]]


def run_again_and_again(application: str, options: dict[str, Any], grace: float, stopping: threading.Event) -> int:
    """Run `reliq worker` with these options until `stopping`, each time with the code as it is then.

    A worker that ended by itself, because its code does not import, starts again with the next change.
    """
    changes = _watch()(Path.cwd(), stopping)
    worker = _start(application, options)
    for changed in changes:
        files = sorted({Path(path).name for _, path in changed})
        log.info("changed: %s; the worker starts again", ", ".join(files[:5]))
        _stop(worker, grace)
        worker = _start(application, options)
    return _stop(worker, grace)


def _watch() -> Callable[[Path, threading.Event], Changes]:
    try:
        from watchfiles import PythonFilter, watch
    except ImportError as error:
        raise missing_extra("--reload", "reload", error) from None
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    return lambda folder, stopping: watch(folder, watch_filter=PythonFilter(), stop_event=stopping)


def _start(application: str, options: dict[str, Any]) -> Child:
    settings = ChildSettings(new_owner(), options=options)
    return Child(settings.owner, [sys.executable, "-m", "reliq", "worker", application], settings.environment())


def _stop(worker: Child, grace: float) -> int:
    """Shut the worker down cleanly, kill it after its grace; return its exit status."""
    worker.signal(signal.SIGTERM)
    try:
        worker.process.wait(grace + _AFTER_GRACE)
    except subprocess.TimeoutExpired:
        worker.signal(signal.SIGKILL)
    status = worker.process.wait()
    if worker.process.stdin is not None:
        worker.process.stdin.close()
    return status
