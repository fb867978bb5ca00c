"""The connections to the nodes of a Redis Cluster, for threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq.ops import Request, Watch
from reliq.ops.topology import ANY, Node, merged, split
from reliq.transport.cluster_steps import NodeSteps, answers_to, current_slots
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import ClusterNode, Server, addressed

T = TypeVar("T")


class ClusterConnection(Connection):
    """Connections to the nodes of a Redis Cluster, opened on demand; the contract of Connection."""

    def __init__(self, store: Server, name: str = "") -> None:
        super().__init__(store, name)
        self._connections: dict[Node, Connection] = {}

    @property
    def reconnected(self) -> bool:
        return any(connection.reconnected for connection in self._connections.values())

    def begin(self, request: Request) -> Any:
        """Send the request if one node serves all of it; else `finish` sends it."""
        if isinstance(request, Watch):
            self.release()
        with self._learning():
            parts = split(request, self._run(current_slots(self._store, self._open)))
            whole = len(parts) == 1 and parts[0].node is not ANY
            return parts, self._at(parts[0].node).begin(parts[0].request) if whole else None

    def finish(self, request: Request, ticket: Any) -> Any:
        """Send each node its part unless `begin` did, and read the answers."""
        parts, begun = ticket
        with self._learning():
            if begun is not None:
                return merged(request, parts, [self._at(parts[0].node).finish(parts[0].request, begun)])
            return merged(request, parts, self._run(answers_to(parts, self._store, self._open)))

    def interrupt(self) -> None:
        for connection in list(self._connections.values()):
            connection.interrupt()

    def arrived(self, ticket: Any) -> bool:
        parts, begun = ticket
        return begun is not None and self._at(parts[0].node).arrived(begun)

    @contextmanager
    def _learning(self) -> Iterator[None]:
        """Update the state after a call; after a failure another node may serve the slots."""
        try:
            yield
        except (ConnectionLost, TryAgain):
            self._store.learn(None)
            raise
        finally:
            connections = self._connections.values()
            self.watching = any(connection.watching for connection in connections)
            self.connects = sum(connection.connects for connection in connections)
            self.connected_at = max((connection.connected_at for connection in connections), default=0.0)

    def _run(self, steps: NodeSteps[T]) -> T:
        """Run steps to their end: each request on the node that they name."""
        try:
            node, request = next(steps)
            while True:
                try:
                    answer = self._at(node).perform(request)
                except Exception as error:  # noqa: BLE001  the steps decide what it means
                    node, request = steps.throw(error)
                else:
                    node, request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    @property
    def _open(self) -> set[Node]:
        """The nodes with a connection."""
        return {node for node, connection in self._connections.items() if connection.connected}

    def _at(self, node: Node | None) -> Connection:
        node = addressed(node, self._connections)
        if node not in self._connections:
            connection = self._connections[node] = Connection(ClusterNode(self._store, node), self._name)
            connection.on_connect = self.on_connect
            connection.follow = lambda node, request, place: self._at(node).ask(request, place)
        return self._connections[node]

    def wait_closed(self, timeout: float) -> bool:
        for connection in list(self._connections.values())[:1]:
            return connection.wait_closed(timeout)
        return super().wait_closed(timeout)

    def release(self) -> None:
        """End a run of steps on every node."""
        for connection in self._connections.values():
            connection.release()
        self.watching = False

    def close(self) -> None:
        super().close()
        for connection in self._connections.values():
            connection.close()
