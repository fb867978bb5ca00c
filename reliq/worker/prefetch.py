"""Prefetch: how many messages to hold at once, many for quick handlers, one per slot for slow ones."""

BUDGET = 0.02  #: seconds of work that may lie waiting behind a running handler
MOST = 256  #: messages per claim; more gain nothing, and a crash returns this many
_GROWTH = 4
_SMOOTHING = 0.2


class Prefetch:
    """Adapts the prefetch limit to the duration of the runs."""

    __slots__ = ("_mean", "_most", "latest", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots  #: handlers that run at once
        self._most = max(MOST, slots)
        self._mean = BUDGET
        self.latest = slots  #: the latest limit

    def note(self, seconds: float, runs: int) -> None:
        """Note that `runs` handlers together took `seconds`."""
        self._mean += _SMOOTHING * (seconds / runs - self._mean)

    def limit(self) -> int:
        """Return how many messages to hold, running and waiting; grows at most fourfold per step."""
        wanted = self.slots * max(1, int(BUDGET / max(self._mean, 1e-9)))
        self.latest = max(self.slots, min(wanted, self.latest * _GROWTH, self._most))
        return self.latest
