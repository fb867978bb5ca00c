"""What a test leaves behind for the next one: threads, child processes, variables of the environment."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

#: Threads of programs of others that end with the process.
_OF_OTHERS = ("asyncio_", "ThreadPoolExecutor-", "Thread-auto", "execnet", "py4j", "QueueFeederThread")
_GRACE = 3.0  #: seconds in which a thread or process that was told to end does so

_children: set["subprocess.Popen[Any]"] = set()  #: that were started and not seen to have ended
_start = subprocess.Popen.__init__


def _noted_start(self: "subprocess.Popen[Any]", *arguments: Any, **options: Any) -> None:
    _start(self, *arguments, **options)
    _children.add(self)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


def _left(threads: set[threading.Thread], children: set["subprocess.Popen[Any]"]) -> list[str]:
    some = [one for one in threading.enumerate() if one not in threads and not one.name.startswith(_OF_OTHERS)]
    running = [one for one in _children - children if one.poll() is None]
    _children.intersection_update({*running, *children})
    return [*(f"thread {one.name}" for one in some), *(f"process {one.pid}: {one.args!r}" for one in running)]


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail at the end if something is there that was not there before."""
    threads, children, environment = set(threading.enumerate()), set(_children), _environment()
    yield
    until = time.monotonic() + _GRACE
    while (left := _left(threads, children)) and time.monotonic() < until:
        time.sleep(0.01)
    changed = environment.items() ^ _environment().items()
    left += sorted({f"variable {name}" for name, _ in changed})
    assert not left, f"the test leaves behind: {', '.join(left)}"


subprocess.Popen.__init__ = _noted_start  # type: ignore[method-assign]
