"""The server or cluster of a store; shared by threads and asyncio."""

import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from reliq.ops import Steps
from reliq.ops.topology import ANY, WATCHED, Node, Slots, address_of
from reliq.runtime.looking import PATIENCE, missing_now
from reliq.transport.errors import TIMED_OUT, ConnectionLost, TryAgain
from reliq.transport.sentinel import Sentinels
from reliq.transport.server_check import check_server
from reliq.transport.target import Target

if TYPE_CHECKING:
    from reliq.transport.watch import Connector, Watches

T = TypeVar("T")

IDLE_MOST = 60.0  #: seconds for which a connection is kept without a call
#: Seconds for which operators' calls do not ask a node again that refused a connection, or did not answer in time.
_REFUSED, _SILENT = 1.0, 5.0


class Server:
    """The target of a URL, whether it was checked and, for a cluster, its slot map."""

    epoch = -1  #: incremented when existing connections lead to the wrong server
    sentinels: Sentinels | None = None  #: that know the address of the master

    def __init__(self, url: str, *, aio: bool, allow_eviction: bool, timeout: float, connect: Any) -> None:
        self.timeout = timeout
        self._aio = aio
        self._allow_eviction = allow_eviction
        self._watches: Watches | None = None
        self._aim(url, connect)

    def _aim(self, url: str, connect: Any) -> None:
        """Set the target. `connect` makes a redis-py connection; given by tests with a server of their own."""
        self._url, self._given = url, connect is not None
        self._target = target = Target(url)
        self.where = target.where
        self.new_connection = connect or target.factory(aio=self._aio)
        if self.sentinels is not None:
            self.sentinels.close()
            self.sentinels = None
        if target.sentinels and connect is None:
            self.sentinels = Sentinels(target.sentinels, target.service, target.to_sentinel)
            self.sentinels.on_change = _Departure(self)
            self.new_connection = self._to_master
        self._trusted = self._checked = self._given
        self._known = False  #: whether it was checked before
        self.epoch += 1
        self.slots: Slots | None = None  #: slot map of a cluster
        self._latest: Slots | None = None
        self._away: dict[Node, tuple[float, str]] = {}  #: nodes that are away: until when they are not asked, and why

    def redirect(self, url: str, connect: Any = None) -> None:
        """Use another server from now on: for a command line that overrides an application's URL, and for tests."""
        self._aim(url, connect)

    @property
    def aim(self) -> tuple[str, Any]:
        """What `redirect` has set, or the constructor: the URL, and what a test has given to make connections."""
        return self._url, self.new_connection if self._given else None

    def connector(self) -> "Connector | None":
        """Return what makes connections for threads; None: a test has given the server."""
        raise NotImplementedError

    @property
    def watches(self) -> "Watches":
        """What waits for keys of several homes, for everyone who uses this store."""
        if self._watches is None:
            from reliq.transport.watch import Watches  # with threads and sockets: few wait for several homes

            self._watches = Watches(self, self.connector())
        return self._watches

    def _end_watches(self) -> None:
        watches, self._watches = self._watches, None
        if watches is not None:
            watches.stop()

    @property
    def sharded(self) -> bool:
        """Whether queues may lie on different servers: then no operation on several queues is atomic."""
        return bool(self._target.seeds)

    def trust(self) -> None:
        """Skip the check: also use servers that cannot hold a queue."""
        self._trusted = self._checked = True

    def _to_master(self) -> Any:
        """Return a connection to the master named by the sentinels; raises ConnectionLost."""
        if self.sentinels is None:
            raise TypeError("the URL names no sentinels")
        return self._target.factory(aio=self._aio, node=self.sentinels.master())()

    def check(self) -> Steps[None]:
        """Refuse a server that cannot hold a queue, before the first call."""
        yield from check_server(self.where, self._allow_eviction, self.sharded, self._known)
        self._checked = self._known = True

    def connections_to(self, node: Node) -> Callable[[], Any]:
        """Return a factory of connections to a node of the cluster."""
        return self._target.factory(aio=self._aio, node=node)

    def known_nodes(self) -> list[Node]:
        """Nodes to query for the slot map, seed nodes last: these may be gone."""
        return [*self.masters(), *self._target.seeds]

    def masters(self) -> list[Node]:
        """Return the masters by the latest slot map; none before it was read."""
        return self._latest.nodes if self._latest else []

    def former(self, nodes: Mapping[T, Any]) -> list[T]:
        """Return those of these nodes that are no master any more: their addresses may never come again."""
        masters = self.masters()
        return [node for node in list(nodes) if node not in masters] if masters else []

    def is_away(self, node: Node) -> bool:
        """Whether a node has not answered a short while ago, nor since."""
        return node in self._away and time.monotonic() < self._away[node][0]

    def expect(self, node: Node) -> None:
        """Give up a node that is away, during an operator's call; raises ConnectionLost."""
        if self._away and missing_now() is not None and self.is_away(node):
            error = ConnectionLost(sent=False, cause=self._away[node][1], given_up=True)
            self.note_failure(node, error)
            raise error

    def note_answer(self, node: Node) -> None:
        if self._away:
            self._away.pop(node, None)

    def note_failure(self, node: Node, error: Exception) -> None:
        """Name the node in its error, and note it if it is away: not one that ended a connection of ours."""
        if isinstance(error, (ConnectionLost, TryAgain)) and not error.node:
            error.node = address_of(node)
        if isinstance(error, ConnectionLost) and not error.given_up:
            silent = error.cause == TIMED_OUT
            if silent or not error.sent:
                self._away[node] = time.monotonic() + (_SILENT if silent else _REFUSED), error.cause

    def patience(self, timeout: float | None) -> float:
        """Return the seconds for which a call is repeated: `timeout`, or what an operator waits for a cluster."""
        timeout = self.timeout if timeout is None else timeout
        return min(timeout, PATIENCE) if self.sharded and missing_now() is not None else timeout

    def node_of(self, key: str) -> Node | None:
        """Return the node of a key by the cached slot map; None without a cluster."""
        return self._latest.node_of(key) if self._latest else None

    def learn(self, slots: Slots | None) -> None:
        """Set the slot map of the cluster; None invalidates it. Without a change the former one stays, as an object."""
        if slots is not None and slots != self._latest:
            self._latest = slots
            for node in self.former(self._away):
                self._away.pop(node, None)
        self.slots = None if slots is None else self._latest

    def depart(self, epoch: int) -> None:
        """Renew all connections of that epoch and resolve the address again: the master has changed."""
        if epoch == self.epoch:
            self.epoch += 1
            if self.sentinels is not None:
                self.sentinels.ask_again()

    def check_again(self) -> None:
        """Repeat the check after a reconnect: the server or its settings may have changed."""
        self._checked = self._trusted


class _Departure:
    """Renews the connections of a server, as long as it exists."""

    def __init__(self, server: Server) -> None:
        self._server = weakref.ref(server)

    def __call__(self) -> None:
        server = self._server()
        if server is not None:
            server.epoch += 1


class ClusterNode:
    """One node of a cluster, for its connections."""

    epoch = 0
    sentinels: Sentinels | None = None

    def __init__(self, server: Server, node: Node) -> None:
        self.new_connection = server.connections_to(node)
        self.check_again = server.check_again

    def depart(self, epoch: int) -> None:
        """Do nothing: the slot map is read again instead."""


def addressed(node: Node | None, connections: Mapping[Node, Any]) -> Node:
    """Return the node for a part of a request. `connections`: the existing ones.

    Raises TryAgain if no node serves its slot, or if the slot has moved from the node that watches its keys.
    """
    watching = next((one for one, connection in connections.items() if connection.watching), None)
    if node is WATCHED:
        return watching or next(iter(connections))
    if node is None:
        unserved = TryAgain("no node serves the slot")
        unserved.node = "(none)"
        raise unserved
    if watching not in (None, ANY, node):
        raise TryAgain("its slots have moved")
    return node
