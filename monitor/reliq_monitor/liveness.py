"""Liveness: decides which consumers are gone.

An expired lease always decides. Earlier than the lease: a consumer that promised to keep a connection named after it,
and has been without one for longer than a grace, is gone, too. A killed process closes its sockets at once; a living
one with cut connections is back within the grace.

No lease can be renewed while Redis is away. So after an outage, or a pause of the monitor itself, no lease is judged
until all consumers have had time to return.
"""

import time
from collections.abc import Container
from dataclasses import dataclass

from reliq.contract import values
from reliq_monitor.absences import Absences
from reliq_monitor.clock_jumps import Deadlines
from reliq_monitor.leases import Leases

#: Seconds after the monitor's own (re)connection: after a restart of Redis all others must come back, too.
SETTLED = 1.5
OUTAGE_GRACE = 5.0  #: seconds after an outage in which no lease is judged; heartbeats are back within one or two


@dataclass(frozen=True, slots=True)
class Vanished:
    consumer: str
    known_dead: bool  #: its connection is gone; its lease may still be valid
    since: int  #: ms of the server's clock: when its connection was last seen, or its lease ended


class Liveness:
    """What a monitor has observed of the consumers of the queues that it leads."""

    def __init__(self, reconnect_grace: float = values.RECONNECT_GRACE) -> None:
        self._absences = Absences(reconnect_grace)
        self._deadlines = Deadlines(OUTAGE_GRACE)
        self._connected_at = 0.0
        self._quiet_until = 0.0  #: by time.monotonic()

    def forget(self) -> None:
        """Forget all observations: after a gap between scans they do not cover the time in between."""
        self._absences.forget()
        self._deadlines.forget()

    def keep(self, queues: Container[str]) -> None:
        """Forget the observations of all other queues: another monitor leads them, and they do not cover its time."""
        self._absences.keep(queues)
        self._deadlines.keep(queues)

    def disturbed(self, at: float | None = None) -> None:
        """Note that Redis was away until `at`, or that this process was paused: all consumers get time to return."""
        self.forget()
        at = time.monotonic() if at is None else at
        self._quiet_until = max(self._quiet_until, at + OUTAGE_GRACE)

    def jumped(self, milliseconds: int) -> None:
        """Note a jump of the server's clock: leases not renewed since then end that much later."""
        self._deadlines.jumped(milliseconds)

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
        self._absences.begin(names if settled else None)

    @property
    def misses_some(self) -> bool:
        """Whether a consumer had no connection at the latest look."""
        return bool(self._absences)

    def look(self, queue: str, leases: Leases, now: int) -> list[Vanished]:
        """Return the consumers of a queue that are gone."""
        quiet = time.monotonic() < self._quiet_until
        absent = self._absences.look(queue, (consumer for consumer, _ in leases), now)
        ends = self._deadlines.look(queue, leases, now)
        gone = []
        for (consumer, deadline), end in zip(leases, ends, strict=True):
            if consumer in absent:
                gone.append(Vanished(consumer, known_dead=True, since=absent[consumer]))
            elif end is None:
                gone.append(Vanished(consumer, known_dead=False, since=now))
            elif not quiet and end <= now:
                gone.append(Vanished(consumer, known_dead=end != deadline, since=end))
        return gone
