"""The connections to the nodes of a Redis Cluster, for threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from reliq.ops import Request, Watch
from reliq.ops.topology import ANY, Node, Part, Slots, merged, split
from reliq.runtime.looking import missing_now
from reliq.transport.cluster_steps import NodeSteps, answers_to, current_slots
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import ClusterNode, Server, addressed

T = TypeVar("T")


class ClusterConnection(Connection):
    """Connections to the nodes of a Redis Cluster, opened on demand; the contract of Connection."""

    def __init__(self, store: Server, name: str = "") -> None:
        super().__init__(store, name)
        self._store = store
        self._connections: dict[Node, Connection] = {}
        self._slots: Slots | None = None  #: since this map there are no connections to former nodes
        self.noticed: Node | None = None  #: the node that sends the notices

    @property
    def connected(self) -> bool:
        return bool(self._open)

    @property
    def reconnected(self) -> bool:
        return any(connection.reconnected for connection in self._connections.values())

    def begin(self, request: Request) -> Any:
        """Send the request if one node serves all of it; else `finish` sends it."""
        if isinstance(request, Watch):
            self.release()
        with self._learning():
            slots = self._run(current_slots(self._store, self._open))
            if slots is not self._slots:
                self._leave_former(slots)
            parts = split(request, slots)
            if len(parts) > 1 or parts[0].node is ANY:
                return parts, None
            node = addressed(parts[0].node, self._connections)
            self._store.expect(node)
            try:
                return parts, self._at(node).begin(parts[0].request)
            except Exception as error:
                self._store.note_failure(node, error)
                raise

    def _leave_former(self, slots: Slots) -> None:
        """Close the connections to nodes that have gone, where nothing is under way."""
        former = self._store.former(self._connections)
        for node in [one for one in former if self._connections[one].idle]:
            self._connections.pop(node).close()
            former.remove(node)
        self._slots = None if former else slots

    def finish(self, request: Request, ticket: Any) -> Any:
        """Send each node its part unless `begin` did, and read the answers."""
        parts, begun = ticket
        with self._learning():
            if begun is not None:
                return merged(request, parts, [self._finish(parts[0], begun)])
            return merged(request, parts, self._run(answers_to(parts, self._store, self._open)))

    def receive(self, ticket: Any) -> None:
        parts, begun = ticket
        if begun is not None:
            self._answering(addressed(parts[0].node, self._connections)).receive(begun)

    def interrupt(self) -> None:
        for connection in list(self._connections.values()):
            connection.interrupt()

    def arrived(self, ticket: Any) -> bool:
        parts, begun = ticket
        return begun is not None and self._at(addressed(parts[0].node, self._connections)).arrived(begun)

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
                    node = addressed(node, self._connections)
                    self._store.expect(node)
                    answer = self._noted(node, self._at(node).perform, request)
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

    def _finish(self, part: Part, ticket: Any) -> Any:
        node = addressed(part.node, self._connections)
        return self._noted(node, self._answering(node).finish, part.request, ticket)

    def _answering(self, node: Node) -> Connection:
        """Return the connection to a node; closed if another call has waited for the node as long as this one would."""
        connection = self._at(node)
        if missing_now() is not None and self._store.is_away(node) and not connection.readable:
            connection.close()
        return connection

    def _noted(self, node: Node, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the connection to a node, and note whether the node answers."""
        try:
            answer = call(*arguments)
        except Exception as error:
            self._store.note_failure(node, error)
            raise
        self._store.note_answer(node)
        return answer

    def _at(self, node: Node) -> Connection:
        if node not in self._connections:
            connection = self._connections[node] = Connection(ClusterNode(self._store, node), self._name)
            connection.on_connect = self._note_connection
            connection.notices = self.notices if node == self.noticed else None
            connection.follow = lambda to, request, place: self._at((to[0] or node[0], to[1])).ask(request, place)
        return self._connections[node]

    def _note_connection(self, named: bool) -> None:
        if self.on_connect is not None:
            self.on_connect(named)

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
