"""Liveness: decides which consumers are gone.

An expired lease always decides. Earlier than the lease: a consumer that promised to keep a connection named after it,
and has been without one for longer than a grace, is gone, too. A killed process closes its sockets at once; a living
one with cut connections is back within the grace.

No lease can be renewed while Redis is away. So after an outage, or a pause of the monitor itself, no lease is judged
until all consumers have had time to return.
"""

import itertools
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from reliq import ops
from reliq.contract import values
from reliq.model.keys import QueueKeys, connection_name, is_connected
from reliq.ops import Steps
from reliq.runtime.pieces import pieces
from reliq_monitor.known import Known

_LEASES = 1000  #: leases that are read by one command

#: Seconds after the monitor's own (re)connection: after a restart of Redis all others must come back, too.
SETTLED = 1.5
OUTAGE_GRACE = 5.0  #: seconds after an outage in which no lease is judged; heartbeats are back within one or two

Leases = Sequence[tuple[str, int | None]]  #: consumers with their deadline, ms of the server's clock; None = no lease


@dataclass(frozen=True, slots=True)
class Vanished:
    consumer: str
    known_dead: bool  #: its connection is gone; its lease may still be valid
    since: int  #: ms of the server's clock: when its connection was last seen, or its lease ended


@dataclass(slots=True)
class _Absence:
    """A consumer without its connection."""

    since: float  #: by time.monotonic(): the first scan in which it was missing
    last_seen: int  #: ms of the server's clock
    looks: int = 1


class Liveness:
    """Remembers the consumers that were missing in the latest scan of each queue."""

    def __init__(self, reconnect_grace: float = values.RECONNECT_GRACE) -> None:
        self._grace = reconnect_grace
        self._absent: dict[str, dict[str, _Absence]] = {}  #: by queue and consumer
        self._looked_at: dict[str, int] = {}  #: by queue, ms of the server's clock
        self._names: frozenset[str] | None = None  #: names of all connections; None = not reliable
        self._connected_at = 0.0
        self._quiet_until = 0.0  #: by time.monotonic()
        self._shifted: dict[tuple[str, str], tuple[int, int]] = {}  #: deadlines from before a jump of the clock
        self._deadlines: dict[str, Leases] = {}  #: by queue, at the latest scan
        self._ahead, self._ahead_until = 0, 0.0  #: ms of a jump ahead, and until when leases from before it may turn up
        self._looked_since: set[str] = set()  #: queues looked at since the jump ahead

    def forget(self) -> None:
        """Forget all observations: after a gap between scans they do not cover the time in between."""
        self._absent, self._looked_at, self._deadlines, self._looked_since = {}, {}, {}, set()

    def disturbed(self, at: float | None = None) -> None:
        """Note that Redis was away until `at`, or that this process was paused: all consumers get time to return."""
        self.forget()
        at = time.monotonic() if at is None else at
        self._quiet_until = max(self._quiet_until, at + OUTAGE_GRACE)

    def jumped(self, milliseconds: int) -> None:
        """Note a jump of the server's clock: leases not renewed since then end that much later.

        After a jump ahead that also goes for leases that are over at the next look: they were renewed between the
        latest one and the jump, or are of queues that other monitors led, as these take each other for gone then.
        """
        at = time.monotonic()
        if milliseconds > 0:
            self._looked_since = set()
            self._ahead = milliseconds + (self._ahead if at < self._ahead_until else 0)
            self._ahead_until = at + OUTAGE_GRACE
        for queue, leases in self._deadlines.items():
            for consumer, deadline in leases:
                if deadline is not None:
                    shift = self._shift_of(queue, consumer, deadline)
                    self._shifted[queue, consumer] = (deadline, shift + milliseconds)

    def keep(self, queues: Container[str]) -> None:
        """Forget the observations of all other queues: another monitor leads them, and they do not cover its time."""
        for seen in (self._absent, self._looked_at, self._deadlines):
            for queue in [queue for queue in seen if queue not in queues]:
                del seen[queue]
        self._looked_since = {queue for queue in self._looked_since if queue in queues}
        self._shifted = {one: shift for one, shift in self._shifted.items() if one[0] in queues}

    @property
    def misses_some(self) -> bool:
        """Whether a consumer had no connection at the latest look."""
        return any(self._absent.values())

    def connections(self, names: frozenset[str] | None, connected_at: float, reconnected: bool = False) -> None:
        """Begin a scan with the names of all connections, and the time of the monitor's own connection.

        When the latter changes, earlier absences mean nothing, nor do absences soon afterwards. None: the names are
        not known at this time; absences stay, and are not judged.
        """
        if connected_at != self._connected_at:
            self._connected_at = connected_at
            self.forget()
            if reconnected:
                self.disturbed(connected_at)
        settled = time.monotonic() - connected_at >= SETTLED
        self._names = names if settled else None

    def look(self, queue: str, leases: Leases, now: int) -> list[Vanished]:
        """Return the consumers of a queue that are gone."""
        quiet = time.monotonic() < self._quiet_until
        self._note_absent(queue, leases, now)
        if queue not in self._looked_since and time.monotonic() < self._ahead_until:
            self._looked_since.add(queue)
            self._shift_what_is_over(queue, leases, now)
        self._deadlines[queue] = leases
        gone = []
        for consumer, deadline in leases:
            absence = self._absent_for_good(queue, consumer)
            if absence is not None:
                gone.append(Vanished(consumer, known_dead=True, since=absence.last_seen))
            elif deadline is None:
                gone.append(Vanished(consumer, known_dead=False, since=now))
            elif not quiet and (ends := deadline + self._shift_of(queue, consumer, deadline)) <= now:
                gone.append(Vanished(consumer, known_dead=ends != deadline, since=ends))
        return gone

    def _shift_what_is_over(self, queue: str, leases: Leases, now: int) -> None:
        """Take leases that are over at the first look after a jump ahead for given before it."""
        for consumer, deadline in leases:
            if deadline is not None and deadline <= now and not self._shift_of(queue, consumer, deadline):
                self._shifted[queue, consumer] = (deadline, self._ahead)

    def _shift_of(self, queue: str, consumer: str, deadline: int) -> int:
        """Return by how many ms a deadline is to be shifted; none once it was renewed since the jump."""
        known, shift = self._shifted.get((queue, consumer), (deadline, 0))
        if known == deadline:
            return shift
        del self._shifted[queue, consumer]
        return 0

    def _note_absent(self, queue: str, leases: Leases, now: int) -> None:
        if self._names is None:
            return
        before, last_look = self._absent.get(queue, {}), self._looked_at.get(queue, now)
        self._looked_at[queue] = now
        absent: dict[str, _Absence] = {}
        for consumer, _ in leases:
            if is_connected(consumer) and connection_name(consumer) not in self._names:
                known = before.get(consumer)
                absent[consumer] = known or _Absence(time.monotonic(), last_look, 0)
                absent[consumer].looks += 1
        self._absent[queue] = absent

    def _absent_for_good(self, queue: str, consumer: str) -> _Absence | None:
        absence = None if self._names is None else self._absent[queue].get(consumer)
        if absence is None or absence.looks < 2 or time.monotonic() - absence.since < self._grace:
            return None
        return absence


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


def read_leases(
    queues: Sequence[QueueKeys], known: Known | None = None, together: bool = False
) -> Steps[list[tuple[int, Leases]]]:
    """Read, for each of these queues, the server's time and the leases of the consumers.

    `known`: the consumers of queues as they were read before. `together`: one call may read leases of many queues.
    """
    known = known or Known()
    members = {keys.queue: known.get(keys.consumers) for keys in queues}
    unread = [keys for keys in queues if not isinstance(members[keys.queue], list)]
    now, *answers = yield [ops.server_time(), *(ops.members(keys.consumers) for keys in unread)]
    for keys, some in zip(unread, answers, strict=True):
        members[keys.queue] = some
        known.note(keys.consumers, some or False)
    by_queue = [[keys.lease(one) for one in members[keys.queue]] for keys in queues]
    calls: list[ops.Op[Any]] = [
        ops.lease_ends(page)
        for some in ([list(itertools.chain.from_iterable(by_queue))] if together else by_queue)
        for page in pieces(some, _LEASES)
    ]
    if known.grows:  # leases change all the time
        calls = [op for call in calls for op in (ops.unnoticed(), call)]
    answers = (yield calls) if calls else []
    ends = itertools.chain.from_iterable(answers[1::2] if known.grows else answers)
    return [(now, [(consumer, next(ends)) for consumer in members[keys.queue]]) for keys in queues]
