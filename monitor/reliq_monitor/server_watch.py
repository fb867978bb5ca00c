"""Server watch: what a monitor must know of a Redis server before it judges the leases there."""

import logging
import threading
import time

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.ops import Steps
from reliq.runtime.moment import boot_time
from reliq.transport.connection import Connection
from reliq_monitor.clock_jumps import ClockWatch
from reliq_monitor.connections import Connections
from reliq_monitor.liveness import OUTAGE_GRACE, Liveness

log = logging.getLogger("reliq.monitor")

_SEEN_FOR = 2.0  #: seconds for which the names seen on another node count


class Sightings:
    """The names of the connections to each node of a cluster, as seen lately; shared by the threads of one monitor.

    A worker that has just moved from one node to another, with a slot, is alive as long as either of them knows it.
    """

    def __init__(self) -> None:
        self._seen: dict[object, tuple[float, frozenset[str]]] = {}
        self._lock = threading.Lock()

    def exchange(self, node: object, names: frozenset[str]) -> frozenset[str]:
        """Note the names seen on a node; return those seen on the others."""
        now = time.monotonic()
        with self._lock:
            self._seen[node] = (now, names)
            self._seen = {one: seen for one, seen in self._seen.items() if now - seen[0] < _SEEN_FOR}
            return frozenset().union(*(names for one, (_, names) in self._seen.items() if one != node))


class ServerWatch:
    """The connections to a server, its clock, and whether it has just started."""

    def __init__(self, liveness: Liveness, connection: Connection, several: bool, sightings: Sightings | None) -> None:
        """`connection` leads to the server; `several`: to all nodes of a cluster, each of which has a clock.

        `sightings`: what is seen on the other nodes of a cluster.
        """
        self._liveness = liveness
        self._connection = connection
        self._several = several
        self._sightings = sightings
        self._clock = ClockWatch(boot_time)
        self._connections = Connections(several, lambda: connection.connected_at)
        self._started_at: float | None = None

    def names(self) -> Steps[frozenset[str] | None]:
        """Return the names of the connections to the server; None where they are not known."""
        return (yield from self._connections.look(self._liveness.misses_some))

    def begin(self, names: frozenset[str] | None) -> None:
        """Begin a scan with the names of the connections to the server; None: they are not known."""
        if self._sightings is not None and self._connections.names is not None:
            elsewhere = self._sightings.exchange(self, self._connections.names)
            names = None if names is None else names | elsewhere
        connection = self._connection
        self._liveness.connections(names, connection.connected_at, connection.reconnected)

    def note_start(self) -> Steps[None]:
        """Notice a server that has just loaded its data: consumers with leases must come back first."""
        if self._started_at is not None or self._several:
            return
        self._started_at = time.monotonic()
        try:
            answers = yield ops.server_info("server", "persistence")
        except RedisUnsuitable:  # the user in the URL may not run it
            return
        info = {name: value for answer in answers for name, value in answer.items()}
        uptime = float(info.get("uptime_in_seconds") or OUTAGE_GRACE)
        loaded = info.get("rdb_last_load_keys_loaded", "0") != "0" or info.get("aof_enabled") == "1"
        if loaded and uptime < OUTAGE_GRACE:
            self._liveness.disturbed(self._started_at - uptime)

    def clock_jump(self) -> Steps[int]:
        """Return by how many ms the server's clock has jumped, 0 = not at all; no lease is judged by a jump."""
        jump = 0 if self._several else (yield from self._clock.ask())
        if jump:
            self._liveness.jumped(jump)
            log.error(
                "the clock of the Redis server jumped by %+.1f s: delayed messages run early or late by that much; "
                "run NTP on the server, and let it slew the clock", jump / 1000,
            )  # fmt: skip
        return jump
