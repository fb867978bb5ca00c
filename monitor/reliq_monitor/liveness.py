"""Liveness: which consumers are gone.

The lease decides, always. Sooner than the lease: a consumer that promised to keep a connection named after it, and has
none in two looks running, is gone too; a killed process closes its sockets at once.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from reliq.keys import connection_name, is_connected

_NAME = re.compile(rb" name=(reliq:\S+)")

SETTLED = 3.0  #: seconds after our own (re)connection: after a restart of Redis everybody else must come back too


@dataclass(frozen=True, slots=True)
class Vanished:
    consumer: str
    known_dead: bool  #: its connection is gone, its lease may still run
    since: int  #: ms of the server's clock: when its connection was last seen, or its lease ended


class Liveness:
    """Remembers who was missing at the last look."""

    def __init__(self) -> None:
        self._missing: frozenset[str] = frozenset()
        self._seen: dict[str, int] = {}  #: when a consumer was last there, or first looked for
        self._life = -1
        self._since = 0.0

    def look(
        self, leases: Iterable[tuple[str, int | None]], now: int, client_list: bytes | None, life: int
    ) -> list[Vanished]:
        """Who is gone, of consumers given with their deadline (ms of the server's clock, None = no lease).

        `client_list`: the answer of CLIENT LIST, None where it is refused. `life`: how often our own connection was
        made; when it changes, looks before it say nothing.
        """
        if life != self._life:
            self._life, self._since, self._missing = life, time.monotonic(), frozenset()
        leases = list(leases)
        missing: frozenset[str] = frozenset()
        if client_list is not None and time.monotonic() - self._since >= SETTLED:
            names = {name.decode() for name in _NAME.findall(client_list)}
            missing = frozenset(
                consumer for consumer, _ in leases if is_connected(consumer) and connection_name(consumer) not in names
            )
        twice = missing & self._missing
        self._missing = missing
        self._seen = {consumer: self._seen.get(consumer, now) if consumer in missing else now for consumer, _ in leases}
        return [
            Vanished(consumer, consumer in twice, self._seen[consumer] if consumer in twice else deadline or now)
            for consumer, deadline in leases
            if deadline is None or deadline <= now or consumer in twice
        ]
