"""Connections: the names of the connections to a server, read again only when it has closed some.

CLIENT LIST takes the server 5 us for each connection, during which it serves no other client. INFO tells at once how
many connections it has closed so far. As long as that number stays, all that were listed are still open.
"""

import re
import time
from collections.abc import Callable

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.ops import Steps
from reliq_monitor.known import SLOW_LOOK

SHARE = 0.05  #: the largest part of the time in which the names are read
_NAME = re.compile(rb" name=(reliq:\S+)")


class Connections:
    """What is known of the connections to one server."""

    def __init__(self, several: bool, connected_at: Callable[[], float]) -> None:
        """`several`: they lead to all nodes of a cluster, whose counts are not added up: the names are always read.

        `connected_at`: since when the monitor itself has been connected; after that, it may be another server.
        """
        self.names: frozenset[str] | None = None  #: of reliq's connections, as they were read last
        self._counts = not several
        self._lists = True
        self._connected_at = connected_at
        self._closed: tuple[float, int] | None = None  #: what was counted before `names` was read
        self._read_at = self._next_at = float("-inf")  #: by time.monotonic()

    def look(self, missing: bool) -> Steps[frozenset[str] | None]:
        """Return the names of all connections there are; None: they are not known now.

        `missing`: one of them was not among the names at the latest look. Perhaps it was named later.
        """
        if not self._lists:
            return None
        closed = yield from self._count_closed()
        slow = time.monotonic() - self._read_at >= SLOW_LOOK
        if self.names is not None and closed is not None and closed == self._closed and not missing and not slow:
            return self.names
        return (yield from self._read(closed)) if time.monotonic() >= self._next_at else None

    def _read(self, closed: tuple[float, int] | None) -> Steps[frozenset[str] | None]:
        began = time.monotonic()
        try:
            listed = yield ops.client_list()
        except RedisUnsuitable:  # some managed services: only the lease decides
            self._lists = False
            return None
        self.names, self._closed, self._read_at = names_in(listed), closed, time.monotonic()
        self._next_at = self._read_at + (self._read_at - began) / SHARE
        return self.names

    def _count_closed(self) -> Steps[tuple[float, int] | None]:
        """Return how many connections this server has closed since its start; None: it does not tell."""
        if not self._counts:
            return None
        try:
            clients, stats = yield ops.server_info("clients", "stats")
            return self._connected_at(), int(stats["total_connections_received"]) - int(clients["connected_clients"])
        except (RedisUnsuitable, KeyError):  # the user in the URL may not run it
            self._counts = False
            return None


def names_in(client_list: bytes) -> frozenset[str]:
    """Return the names of reliq's connections in a reply of CLIENT LIST."""
    return frozenset(name.decode() for name in _NAME.findall(client_list))
