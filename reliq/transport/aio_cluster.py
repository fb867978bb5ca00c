"""The connections to the nodes of a Redis Cluster, for tasks of an event loop."""

from typing import Any, TypeVar

from reliq.ops import Request, Sleep, Watch
from reliq.ops.topology import Node, Slots, merged, split
from reliq.transport.aio_connection import AioConnection
from reliq.transport.cluster_steps import NodeSteps, answers_to, current_slots
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import ClusterNode, Server, addressed

T = TypeVar("T")


class AioClusterConnection(AioConnection):
    """Connections to the nodes of a Redis Cluster, opened on demand; the contract of AioConnection."""

    def __init__(self, store: Server, name: str = "") -> None:
        super().__init__(store, name)
        self._store = store
        self._connections: dict[Node, AioConnection] = {}
        self._slots: Slots | None = None  #: since this map there are no connections to former nodes

    async def perform(self, request: Request) -> Any:
        """Send each node its part of the request and merge the answers."""
        if isinstance(request, Sleep):
            return await super().perform(request)
        if isinstance(request, Watch):
            await self.release()
        try:
            slots = await self._run(current_slots(self._store, self._open))
            if slots is not self._slots:
                await self._leave_former(slots)
            parts = split(request, slots)
            return merged(request, parts, await self._run(answers_to(parts, self._store, self._open)))
        except (ConnectionLost, TryAgain):
            self._store.learn(None)  # another node may serve them now
            raise
        finally:
            self.watching = any(connection.watching for connection in self._connections.values())
            self.connects = sum(connection.connects for connection in self._connections.values())

    async def _leave_former(self, slots: Slots) -> None:
        """Close the connections to nodes that have gone, but for one with a transaction."""
        former = self._store.former(self._connections)
        for node in [one for one in former if not self._connections[one].watching]:
            await self._connections.pop(node).close()
            former.remove(node)
        self._slots = None if former else slots

    async def _run(self, steps: NodeSteps[T]) -> T:
        """Run steps to their end: each request on the node that they name."""
        try:
            node, request = next(steps)
            while True:
                try:
                    answer = await self._ask(addressed(node, self._connections), request)
                except Exception as error:  # noqa: BLE001  the steps decide what it means
                    node, request = steps.throw(error)
                else:
                    node, request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _ask(self, node: Node, request: Request) -> Any:
        try:
            self._store.expect(node)
            answer = await self._at(node).perform(request)
        except Exception as error:
            self._store.note_failure(node, error)
            raise
        self._store.note_answer(node)
        return answer

    @property
    def _open(self) -> set[Node]:
        """The nodes with a connection."""
        return {node for node, connection in self._connections.items() if connection.connected}

    def _at(self, node: Node) -> AioConnection:
        if node not in self._connections:
            connection = self._connections[node] = AioConnection(ClusterNode(self._store, node), self._name)
            connection.on_connect = self.on_connect
            connection.follow = lambda to, request, place: self._at((to[0] or node[0], to[1])).ask(request, place)
        return self._connections[node]

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
