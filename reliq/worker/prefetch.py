"""Prefetch: how many messages to hold at once: many for quick handlers or a distant Redis, else one per slot."""

BUDGET = 0.02  #: seconds of work that may lie waiting behind a running handler
MOST = 256  #: messages per claim; more gain nothing, and a crash returns this many
_GROWTH = 4
_SMOOTHING = 0.2
_NOTICEABLE = 0.05  #: a round trip that takes this part of the time of a batch is worth hiding


class RoundTrip:
    """The time of a round trip to Redis: the least one lately, as Redis and this process may be busy."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0  #: 0 until one was noted

    def note(self, seconds: float) -> None:
        self.seconds = min(seconds, self.seconds + _SMOOTHING * (seconds - self.seconds)) if self.seconds else seconds


class Prefetch:
    """Adapts the prefetch limit to the duration of the runs, and to the distance of Redis.

    While a round trip brings the next messages, the slots need others. In the next one those are settled that ended
    meanwhile. So the messages that wait here have work for two round trips, or for BUDGET.
    """

    __slots__ = ("_mean", "_most", "_trip", "latest", "slots")

    def __init__(self, slots: int, trip: RoundTrip) -> None:
        self.slots = slots  #: handlers that run at once
        self._most = max(MOST, slots)
        self._mean = BUDGET
        self._trip = trip
        self.latest = slots  #: the latest limit

    def note(self, seconds: float, runs: int) -> None:
        """Note that `runs` handlers together took `seconds`."""
        self._mean += _SMOOTHING * (seconds / runs - self._mean)

    def limit(self) -> int:
        """Return how many messages to hold, running and waiting; grows at most fourfold per step."""
        mean = max(self._mean, 1e-9)
        wanted = int(self.slots * max(BUDGET / mean, 1 + 2 * self._trip.seconds / mean))
        self.latest = max(self.slots, min(wanted, self.latest * _GROWTH, self._most))
        return self.latest

    @property
    def waits_for_trips(self) -> bool:
        """Whether a slot would idle for a noticeable time if it asked for the next messages when it has none left."""
        return self._trip.seconds * self.slots > _NOTICEABLE * self.latest * self._mean
