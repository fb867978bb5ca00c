"""The tempo of work that is done at a rate, such as a redrive."""

import time

_MADE_UP = 1.0  #: seconds of a delay that are made up for


class Tempo:
    """Paces work to `rate` items a second.

    After a delay, such as an outage or a suspended process, at most a second's worth is made up for at once.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def pause_after(self, count: int) -> float:
        """Return the seconds to wait before the next item, after `count` more have been done."""
        now = time.monotonic()
        self._due = max(self._due, now - _MADE_UP) + count / self._rate
        return max(0.0, self._due - now)
