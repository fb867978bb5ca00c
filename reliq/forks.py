"""Forks: a child process must not use its parent's sockets and producer sequences.

Not every fork runs Python's at-fork hooks: those of uWSGI's workers and of C libraries do not. So the process id is
compared wherever it matters; that costs a tenth of a microsecond.
"""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

Mark = tuple[int, int]

_mark: Mark = (0, os.getpid())  # the number of forks that ran the hooks, and the process id
_callbacks: list[Callable[[], None]] = []


def mark() -> Mark:
    """Return a value that identifies this process: an object made under another mark belongs to the parent process."""
    if os.getpid() != _mark[1]:
        _forked(0)
    return _mark


def in_every_child(callback: Callable[[], None]) -> None:
    """Call `callback` in each child process, at the latest at the first `mark()` there, and possibly twice."""
    _callbacks.append(callback)


def end_child() -> NoReturn:
    """End a child process where the code that forked it returns or raises, before it goes on with its parent's work.

    As `sys.exit` would, but without the `finally` blocks and exit hooks: they belong to the parent.
    """
    error, status = sys.exception(), 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _forked(hooks_run: int = 1) -> None:
    global _mark
    for callback in _callbacks:
        callback()
    _mark = (_mark[0] + hooks_run, os.getpid())  # last: another thread that sees it may rely on the callbacks


os.register_at_fork(after_in_child=_forked)
