"""Calls: the connections of one loop of a monitor, and whether its server answers."""

import math
import time
from typing import TypeVar

from reliq.model.keys import JobKeys
from reliq.ops import Steps
from reliq.ops.topology import Node, Slots, address_of
from reliq.transport.cluster import ClusterConnection
from reliq.transport.connection import Connection
from reliq.transport.notices import Notices
from reliq.transport.store import Store
from reliq_monitor.known import Known

T = TypeVar("T")

_UNRESPONSIVE = 1.0  #: seconds after which a call counts as one that gets no answer


class Calls:
    """Runs the steps of one loop."""

    def __init__(self, store: Store, node: Node | None) -> None:
        """`node`: the master of a cluster that the loop is for; None: all servers."""
        self._store = store
        self._connection = store.connection("reliq-monitor")
        self.at_node = self._connection if node is None else store.connection_to(node, "reliq-monitor")
        self._node = node
        self._notices: Notices | None = None
        self.known = Known(lambda: self._notices is not None and self._notices.active)
        self.patience: float | None = None  #: seconds a call is repeated; in the loop the next turn repeats it
        self._slots: Slots | None = None
        self._began_at = math.inf  #: by time.monotonic(): the call under way

    def run(self, steps: Steps[T], connection: Connection | None = None) -> T:
        """Run steps. `connection`: `at_node`, for what belongs to the node and to no queue."""
        self._began_at = time.monotonic()
        try:
            return self._store.run(steps, connection or self._connection, timeout=self.patience)
        finally:
            self._began_at = math.inf

    # --- what the server tells ---

    def begin_notices(self) -> None:
        """Let the server tell from now on which of the keys that were read have changed."""
        connection = self._connection
        if isinstance(connection, ClusterConnection):
            connection.noticed = self._node
        self._notices = connection.notices = Notices(self.known.changed)

    def take_notices(self) -> None:
        """Forget what has changed, and what was known for long."""
        if self._notices is not None:
            self._notices.take()
            self.known.prune()

    @property
    def unanswered(self) -> bool:
        """Whether the server does not answer now."""
        return time.monotonic() - self._began_at > _UNRESPONSIVE

    def node_of(self, home: JobKeys) -> str:
        """Return the node of a queue; empty if it is not known, or all queues lie on the same one."""
        slots = self._slots = self._store.slots or self._slots
        return address_of(slots.node_of(home.jobs) if slots is not None else None)

    def interrupt(self) -> None:
        """Make a call that waits for a node fail. Thread-safe."""
        self._connection.interrupt()
        self.at_node.interrupt()

    def close(self) -> None:
        """Close the connections."""
        if self._notices is not None:
            self._notices.end()
        self._connection.close()
        self.at_node.close()
