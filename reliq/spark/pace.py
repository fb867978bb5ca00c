"""The pace of a stream: how many messages its next micro-batch may have, and whether it waits for more of them."""

import time
from collections.abc import Callable

_SAVED = 60.0  #: seconds of its rate that a stream without messages saves up


class Pace:
    """Of one query, from its start on.

    `rate`: messages a second; None: no limit. `least`: a batch with fewer waits until `delay` seconds have passed since
    the one before.
    """

    def __init__(
        self, rate: int | None, least: int | None, delay: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._least, self._delay, self._clock = rate, least or 1, delay, clock
        self._saved = float(rate or 0)  # a first second
        self._noted = self._last = clock()

    def room(self, most: int) -> int:
        """Return how many of `most` messages the rate allows now."""
        if self._rate is None:
            return most
        now = self._clock()
        self._saved = min(self._saved + (now - self._noted) * self._rate, self._rate * _SAVED)
        self._noted = now
        return min(most, int(self._saved))

    def until_room(self) -> float:
        """Return the seconds until the rate allows a message."""
        return max(0.0, (1 - self._saved) / self._rate) if self._rate else 0.0

    @property
    def wants_more(self) -> bool:
        """Whether the number of ready messages matters: a batch of one would wait."""
        return self._least > 1 and self._clock() - self._last < self._delay

    def waits(self, ready: int) -> bool:
        """Whether a batch of so many messages waits for more."""
        return self.wants_more and ready < self._least

    def claimed(self, messages: int) -> None:
        """Note a batch."""
        self._saved -= messages
        self._last = self._clock()
