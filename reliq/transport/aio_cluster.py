"""The connections to the nodes of a Redis Cluster, for tasks of an event loop."""

from collections.abc import Sequence
from typing import Any, TypeVar

from reliq.errors import QueueFull, RedisUnavailable, ReliqError
from reliq.ops import Request, Sleep, Watch
from reliq.ops.topology import ANY, Node, Part, Slots, merged, split
from reliq.transport.aio_connection import AioConnection
from reliq.transport.calls import carried_out_in_part, only_reads, repeatable
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import ClusterNode, Server, addressed
from reliq.transport.server_check import cluster_slots, no_cluster

T = TypeVar("T")


class AioClusterConnection(AioConnection):
    """Connections to the nodes of a Redis Cluster, opened on demand; the contract of AioConnection."""

    def __init__(self, store: Server, name: str = "") -> None:
        super().__init__(store, name)
        self._connections: dict[Node, AioConnection] = {}

    async def perform(self, request: Request) -> Any:
        """Send each node its part of the request and merge the answers."""
        if isinstance(request, Sleep):
            return await super().perform(request)
        if isinstance(request, Watch):
            await self.release()
        try:
            parts = split(request, await self._slots())
            return merged(request, parts, await self._ask_all(parts))
        except (ConnectionLost, TryAgain):
            self._store.learn(None)  # another node may serve them now
            raise
        finally:
            self.watching = any(connection.watching for connection in self._connections.values())
            self.connects = sum(connection.connects for connection in self._connections.values())

    async def _ask_all(self, parts: Sequence[Part]) -> list[Any]:
        answers: list[Any] = []
        changed = False
        for part in parts:
            try:
                answers.append(await self._ask(part))
            except (ConnectionLost, TryAgain) as error:
                error.sent = error.sent or changed
                raise
            except QueueFull:
                if changed and all(repeatable(one.request) for one in parts):
                    raise carried_out_in_part() from None
                raise
            changed = changed or not only_reads(part.request)
        return answers

    async def _ask(self, part: Part) -> Any:
        if part.node is not ANY:
            return await self._at(part.node).perform(part.request)
        failure: Exception = TryAgain("it has no nodes")
        for node in self._store.known_nodes():
            try:
                return await self._at(node).perform(part.request)
            except ConnectionLost as error:
                failure = error
                if error.sent:
                    break
        raise failure

    def _at(self, node: Node | None) -> AioConnection:
        node = addressed(node, self._connections)
        if node not in self._connections:
            connection = self._connections[node] = AioConnection(ClusterNode(self._store, node), self._name)
            connection.on_connect = self.on_connect
            connection.follow = lambda node, request, place: self._at(node).ask(request, place)
        return self._connections[node]

    async def _slots(self) -> Slots:
        if self._store.slots is None:
            failure: Exception = TryAgain("it has no nodes")
            # Connected nodes first: an unreachable one costs seconds.
            for node in sorted(self._store.known_nodes(), key=lambda node: node not in self._connections):
                try:
                    self._store.learn(await self._at(node).perform(cluster_slots(node)))
                    break
                except (ConnectionLost, TryAgain, RedisUnavailable) as error:
                    failure = error
                except ReliqError:
                    raise no_cluster(self._store.where) from None
            else:
                raise failure
        found: Slots = self._store.slots
        return found

    @property
    def connected(self) -> bool:
        return any(connection.connected for connection in self._connections.values())

    @property
    def ended(self) -> bool:
        return any(connection.connected and connection.ended for connection in self._connections.values())

    async def release(self) -> None:
        """End a run of steps on every node."""
        for connection in self._connections.values():
            await connection.release()
        self.watching = False

    async def close(self) -> None:
        await super().close()
        for connection in self._connections.values():
            await connection.close()
