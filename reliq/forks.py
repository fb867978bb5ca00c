"""Forks: what belongs to the process that forked this one, a socket or a producer's sequence, must not be used here.

Not every fork runs Python's at-fork hooks: uWSGI's workers and any `fork()` of a C library come without. So the process
id is compared wherever it matters; that costs a tenth of a microsecond.
"""

import os
from collections.abc import Callable

Mark = tuple[int, int]

_mark: Mark = (0, os.getpid())  # the forks that ran the hooks, and the process id
_callbacks: list[Callable[[], None]] = []


def mark() -> Mark:
    """What tells this process from the one that forked it: what was made under another mark belongs to that one."""
    if os.getpid() != _mark[1]:
        _forked(0)
    return _mark


def in_every_child(callback: Callable[[], None]) -> None:
    """Call this in each child process, at the latest when `mark` is asked for there. Twice must do no harm."""
    _callbacks.append(callback)


def _forked(hooks_run: int = 1) -> None:
    global _mark
    for callback in _callbacks:
        callback()
    _mark = (_mark[0] + hooks_run, os.getpid())  # last: another thread that sees it may rely on the callbacks


os.register_at_fork(after_in_child=_forked)
