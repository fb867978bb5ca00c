"""Forks: a child process must not use its parent's sockets and producer sequences.

Not every fork runs Python's at-fork hooks: those of uWSGI's workers and of C libraries do not. So the process id is
compared wherever it matters; that costs a tenth of a microsecond.
"""

import os
from collections.abc import Callable

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


def _forked(hooks_run: int = 1) -> None:
    global _mark
    for callback in _callbacks:
        callback()
    _mark = (_mark[0] + hooks_run, os.getpid())  # last: another thread that sees it may rely on the callbacks


os.register_at_fork(after_in_child=_forked)
