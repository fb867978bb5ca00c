"""A progress bar on the terminal; hidden if standard error is not a terminal."""

import sys
import time

_WIDTH = 30
_EVERY = 0.1


class Progress:
    """One line on standard error, redrawn in place. `total` 0 = unknown: a count and a rate."""

    def __init__(self, what: str, total: int = 0, visible: bool | None = None) -> None:
        self._what = what
        self._total = total
        self._visible = sys.stderr.isatty() if visible is None else visible
        self._started = time.monotonic()
        self._drawn = 0.0

    def update(self, done: int, note: str = "", final: bool = False) -> None:
        """Draw it, at most ten times a second."""
        now = time.monotonic()
        if not self._visible or (now - self._drawn < _EVERY and not final):
            return
        self._drawn = now
        rate = done / max(now - self._started, 1e-6)
        if self._total:
            drawn = f"{_bar(done / self._total, _WIDTH)} {done}/{self._total}"
        else:
            drawn = str(done)
        print(
            f"\r\x1b[K{self._what} {drawn} {rate:,.0f}/s {note}", end="\n" if final else "", file=sys.stderr, flush=True
        )


def bar(fraction: float) -> str:
    """Return a bar of text for a number from 0 to 1, with its percentage."""
    return f"{_bar(fraction, 20)} {fraction:4.0%}"


def _bar(fraction: float, width: int) -> str:
    filled = min(width, int(width * fraction))
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def since(milliseconds: int) -> str:
    """Return how long ago it was, as `age` writes it."""
    return age(max(0.0, time.time() - milliseconds / 1000))


def age(seconds: float) -> str:
    """Return a length of time with its largest unit, such as 1.5h."""
    for size, unit in ((1, "s"), (60, "m"), (3600, "h"), (86_400, "d")):
        if seconds / size < 99.5 or unit == "d":
            return f"{seconds / size:.1f}{unit}" if seconds / size < 9.95 else f"{seconds / size:.0f}{unit}"
    raise AssertionError("days have no bound")
