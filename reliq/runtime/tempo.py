"""The tempo of work that is done at a rate, such as a redrive."""

import time

_MADE_UP = 1.0  #: seconds of a delay that are made up for


class Tempo:
    """When the next of what is done `rate` times a second is due.

    A delay, such as an outage or a suspended process, is made up for by a second's worth at most: the rate is there so
    that not all comes at once.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def pause_after(self, count: int) -> float:
        """Return the seconds until the next one is due, after so many more have been done."""
        now = time.monotonic()
        self._due = max(self._due, now - _MADE_UP) + count / self._rate
        return max(0.0, self._due - now)
