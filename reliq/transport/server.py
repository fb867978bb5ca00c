"""What a store knows of the server or cluster that it speaks to; the same for threads and for tasks."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from reliq.ops import Steps
from reliq.ops.topology import ANY, WATCHED, Node, Slots
from reliq.transport.errors import TryAgain
from reliq.transport.sentinel import Sentinels
from reliq.transport.server_check import check_server
from reliq.transport.target import Target


class Server:
    """Where a URL leads, whether it was checked, and of a cluster, where everything is."""

    epoch = -1  #: counts up when the connections there are lead to the wrong server
    sentinels: Sentinels | None = None  #: that know the master's address

    def __init__(self, url: str, *, aio: bool, allow_eviction: bool, timeout: float, connect: Any) -> None:
        self.timeout = timeout
        self._aio = aio
        self._allow_eviction = allow_eviction
        self._aim(url, connect)

    def _aim(self, url: str, connect: Any) -> None:
        """`connect` makes a redis-py connection; given by tests that bring a server of their own."""
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
        self._trusted = self._checked = connect is not None
        self._known = False  #: it was checked before
        self.epoch += 1
        self.slots: Slots | None = None  #: of a cluster
        self._latest: Slots | None = None

    @property
    def sharded(self) -> bool:
        """Whether queues may lie on different servers: then nothing is atomic over several of them."""
        return bool(self._target.seeds)

    def trust(self) -> None:
        """Check no server: speak to those, too, that must not hold a queue."""
        self._trusted = self._checked = True

    def _to_master(self) -> Any:
        """A connection to the master that the sentinels name; raises Lost."""
        if self.sentinels is None:
            raise TypeError("the URL names no sentinels")
        return self._target.factory(aio=self._aio, node=self.sentinels.master())()

    def check(self) -> Steps[None]:
        """Refuse a server that must not hold a queue, before the first call of any link."""
        yield from check_server(self.where, self._allow_eviction, self.sharded, self._known)
        self._checked = self._known = True

    def connections_to(self, node: Node) -> Callable[[], Any]:
        """What makes connections to a node of the cluster."""
        return self._target.factory(aio=self._aio, node=node)

    def known_nodes(self) -> list[Node]:
        """Those to be asked where everything is: the ones of the URL last, they may be long gone."""
        return [*(self._latest.nodes if self._latest else ()), *self._target.seeds]

    def node_of(self, key: str) -> Node | None:
        """The node that has a key, as far as was last known; None without a cluster."""
        return self._latest.node_of(key) if self._latest else None

    def learn(self, slots: Slots | None) -> None:
        """Where everything is in the cluster; None: what was known is wrong."""
        self.slots = slots
        if slots is not None:
            self._latest = slots

    def depart(self, epoch: int) -> None:
        """Have every connection of that epoch made anew, its address resolved again: the master is elsewhere."""
        if epoch == self.epoch:
            self.epoch += 1
            if self.sentinels is not None:
                self.sentinels.ask_again()

    def check_again(self) -> None:
        """A connection was made anew: it may lead to another server, or to one with other settings."""
        self._checked = self._trusted


class _Departure:
    """Has the connections of a server made anew, while there is that server."""

    def __init__(self, server: Server) -> None:
        self._server = weakref.ref(server)

    def __call__(self) -> None:
        server = self._server()
        if server is not None:
            server.epoch += 1


class ClusterNode:
    """One node of a cluster, as its links know it."""

    epoch = 0
    sentinels = None

    def __init__(self, server: Server, node: Node) -> None:
        self.new_connection = server.connections_to(node)
        self.check_again = server.check_again

    def depart(self, epoch: int) -> None:
        """Nothing: who has the node's slots now is asked for instead."""


def addressed(node: Node | None, connections: Mapping[Node, Any]) -> Node:
    """The node that a part of a request is for. `connections`: those there are.

    Raises Busy where nobody has its slot, and where it has moved from the node that watches its keys.
    """
    watching = next((one for one, connection in connections.items() if connection.watching), None)
    if node is WATCHED:
        return watching or next(iter(connections))
    if node is None:
        raise TryAgain("nobody has the slot")
    if watching not in (None, ANY, node):
        raise TryAgain("its slots have moved")
    return node
