"""The connections to the nodes of a Redis Cluster, for threads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq.errors import QueueFull, RedisUnavailable, ReliqError
from reliq.ops import Request, Watch
from reliq.ops.topology import ANY, Node, Part, Slots, merged, split
from reliq.transport.calls import carried_out_in_part, only_reads, repeatable
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import ClusterNode, Server, addressed
from reliq.transport.server_check import cluster_slots, no_cluster

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
            parts = split(request, self._slots())
            whole = len(parts) == 1 and parts[0].node is not ANY
            return parts, self._at(parts[0].node).begin(parts[0].request) if whole else None

    def finish(self, request: Request, ticket: Any) -> Any:
        """Send each node its part unless `begin` did, and read the answers."""
        parts, begun = ticket
        with self._learning():
            if begun is not None:
                return merged(request, parts, [self._at(parts[0].node).finish(parts[0].request, begun)])
            return merged(request, parts, list(self._ask_all(parts)))

    def _ask_all(self, parts: Sequence[Part]) -> Iterator[Any]:
        changed = False
        for part in parts:
            try:
                yield self._ask(part)
            except (ConnectionLost, TryAgain) as error:
                error.sent = error.sent or changed
                raise
            except QueueFull:
                if changed and all(repeatable(one.request) for one in parts):
                    raise carried_out_in_part() from None
                raise
            changed = changed or not only_reads(part.request)

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

    def _ask(self, part: Part) -> Any:
        if part.node is not ANY:
            return self._at(part.node).perform(part.request)
        failure: Exception = TryAgain("it has no nodes")
        for node in self._store.known_nodes():
            try:
                return self._at(node).perform(part.request)
            except ConnectionLost as error:
                failure = error
                if error.sent:
                    break
        raise failure

    def _at(self, node: Node | None) -> Connection:
        node = addressed(node, self._connections)
        if node not in self._connections:
            connection = self._connections[node] = Connection(ClusterNode(self._store, node), self._name)
            connection.on_connect = self.on_connect
            connection.follow = lambda node, request, place: self._at(node).ask(request, place)
        return self._connections[node]

    def _slots(self) -> Slots:
        if self._store.slots is None:
            failure: Exception = TryAgain("it has no nodes")
            # Connected nodes first: an unreachable one costs seconds.
            for node in sorted(self._store.known_nodes(), key=lambda node: node not in self._connections):
                try:
                    self._store.learn(self._at(node).perform(cluster_slots(node)))
                    break
                except (ConnectionLost, TryAgain, RedisUnavailable) as error:
                    failure = error
                except ReliqError:
                    raise no_cluster(self._store.where) from None
            else:
                raise failure
        found: Slots = self._store.slots
        return found

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
