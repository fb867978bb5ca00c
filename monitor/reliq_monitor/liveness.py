"""Liveness: which consumers are gone.

The lease decides, always. Sooner than the lease: a consumer that promised to keep a connection named after it, and has
none in two looks running, is gone too; a killed process closes its sockets at once.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from reliq import ops
from reliq.keys import QueueKeys, connection_name, is_connected
from reliq.ops import Steps

_NAME = re.compile(rb" name=(reliq:\S+)")

SETTLED = 1.5  #: seconds after our own (re)connection: after a restart of Redis everybody else must come back too

Leases = Sequence[tuple[str, int | None]]  #: consumers with their deadline, ms of the server's clock; None = no lease


@dataclass(frozen=True, slots=True)
class Vanished:
    consumer: str
    known_dead: bool  #: its connection is gone, its lease may still run
    since: int  #: ms of the server's clock: when its connection was last seen, or its lease ended


class Liveness:
    """Remembers who was missing at the last look at each queue."""

    def __init__(self) -> None:
        self._missing: dict[str, frozenset[str]] = {}
        self._seen: dict[
            str, dict[str, int]
        ] = {}  #: of each queue: when a consumer was last there, or first looked for
        self._names: frozenset[str] | None = None  #: the connections there are; None = not to be relied on
        self._connected_at = 0.0

    def connections(self, client_list: bytes | None, connected_at: float) -> None:
        """Begin a scan: the answer of CLIENT LIST (None = refused), and since when we are connected ourselves.

        When that changes, what was missing before says nothing, nor does what is missing soon after.
        """
        if connected_at != self._connected_at:
            self._connected_at, self._missing = connected_at, {}
        settled = time.monotonic() - connected_at >= SETTLED
        names = None if client_list is None or not settled else _NAME.findall(client_list)
        self._names = None if names is None else frozenset(name.decode() for name in names)

    def look(self, queue: str, leases: Leases, now: int) -> list[Vanished]:
        """Who is gone of a queue's consumers."""
        missing = frozenset(consumer for consumer, _ in leases if self._is_missing(consumer))
        twice = missing & self._missing.get(queue, frozenset())
        self._missing[queue] = missing
        before = self._seen.get(queue, {})
        seen = {consumer: before.get(consumer, now) if consumer in missing else now for consumer, _ in leases}
        self._seen[queue] = seen
        return [
            Vanished(consumer, consumer in twice, seen[consumer] if consumer in twice else deadline or now)
            for consumer, deadline in leases
            if deadline is None or deadline <= now or consumer in twice
        ]

    def _is_missing(self, consumer: str) -> bool:
        return self._names is not None and is_connected(consumer) and connection_name(consumer) not in self._names


def read_leases(queues: Sequence[QueueKeys]) -> Steps[tuple[int, list[tuple[QueueKeys, Leases]]]]:
    """The server's time, and the leases of those of these queues that have consumers."""
    now, *members = yield [ops.server_time(), *(ops.members(keys.consumers) for keys in queues)]
    watched = [(keys, consumers) for keys, consumers in zip(queues, members, strict=True) if consumers]
    if not watched:
        return now, []
    answers = yield [ops.command("MGET", *map(keys.lease, consumers)) for keys, consumers in watched]
    deadlines = ([None if one is None else int(one) for one in answer] for answer in answers)
    return now, [
        (keys, list(zip(consumers, some, strict=True)))
        for (keys, consumers), some in zip(watched, deadlines, strict=True)
    ]
