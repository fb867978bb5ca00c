"""Jumps of a Redis server's clock: they are detected, and end no lease."""

import time
from collections.abc import Callable, Container

from reliq import ops
from reliq.ops import Steps
from reliq_monitor.leases import Leases


class ClockWatch:
    """Detects jumps of a Redis server's clock by comparison with a clock that never jumps."""

    LARGEST = 1000  #: ms by which two clocks may drift apart between two readings

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  #: seconds; goes on while this machine sleeps
        self._offsets: dict[str, tuple[float, float]] = {}  #: by server: bounds, in ms, of how far its clock is ahead

    def ask(self, server: str = "") -> Steps[int]:
        """Read the server's time; return by how many ms it has jumped since the last reading, 0 = not at all."""
        before = self._clock() * 1000
        now: int = yield ops.server_time()
        lowest, highest = now - self._clock() * 1000, now - before
        known = self._offsets.get(server)
        self._offsets[server] = (lowest, highest)
        if known is None or (lowest - known[1] <= self.LARGEST and known[0] - highest <= self.LARGEST):
            return 0
        return round((lowest + highest - known[0] - known[1]) / 2)


class Deadlines:
    """When leases end: those that were given before a jump of the clock, and not renewed since, that much later."""

    def __init__(self, turns_up: float) -> None:
        """`turns_up`: seconds after a jump ahead in which leases from before it may turn up."""
        self._turns_up = turns_up
        self._latest: dict[str, Leases] = {}  #: by queue, at the latest look
        self._shifted: dict[tuple[str, str], tuple[int, int]] = {}  #: by queue and consumer: a deadline, and ms
        self._ahead, self._ahead_until = 0, 0.0  #: ms of a jump ahead, and until when leases from before it turn up
        self._looked_since: set[str] = set()  #: queues looked at since the jump ahead

    def forget(self) -> None:
        """Forget the latest looks; what was shifted stays shifted."""
        self._latest, self._looked_since = {}, set()

    def keep(self, queues: Container[str]) -> None:
        """Forget all other queues."""
        self._latest = {queue: leases for queue, leases in self._latest.items() if queue in queues}
        self._looked_since = {queue for queue in self._looked_since if queue in queues}
        self._shifted = {one: shift for one, shift in self._shifted.items() if one[0] in queues}

    def jumped(self, milliseconds: int) -> None:
        """Shift the deadlines of the latest looks.

        After a jump ahead also those that are over at the next look: they were renewed between the latest one and the
        jump, or are of queues that other monitors led, as these take each other for gone then.
        """
        at = time.monotonic()
        if milliseconds > 0:
            self._looked_since = set()
            self._ahead = milliseconds + (self._ahead if at < self._ahead_until else 0)
            self._ahead_until = at + self._turns_up
        for queue, leases in self._latest.items():
            for consumer, deadline in leases:
                if deadline is not None:
                    shift = self._shift_of(queue, consumer, deadline)
                    self._shifted[queue, consumer] = (deadline, shift + milliseconds)

    def look(self, queue: str, leases: Leases, now: int) -> list[int | None]:
        """Note the leases of a queue; return when each ends, ms."""
        if queue not in self._looked_since and time.monotonic() < self._ahead_until:
            self._looked_since.add(queue)
            for consumer, deadline in leases:
                if deadline is not None and deadline <= now and not self._shift_of(queue, consumer, deadline):
                    self._shifted[queue, consumer] = (deadline, self._ahead)
        if self._shifted:
            for gone in dict(self._latest.get(queue, ())).keys() - dict(leases).keys():
                self._shifted.pop((queue, gone), None)
        self._latest[queue] = leases
        return [None if end is None else end + self._shift_of(queue, consumer, end) for consumer, end in leases]

    def _shift_of(self, queue: str, consumer: str, deadline: int) -> int:
        """Return by how many ms a deadline is to be shifted; none once it was renewed since the jump."""
        known, shift = self._shifted.get((queue, consumer), (deadline, 0))
        if known == deadline:
            return shift
        del self._shifted[queue, consumer]
        return 0
