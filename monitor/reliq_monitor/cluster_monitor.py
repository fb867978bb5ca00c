"""A monitor of a Redis Cluster: a loop in a thread of its own for each master, so that one away delays no other.

Each loop is that of a single server, with its own list of the monitors that share the queues there: a monitor that
cannot reach a node leads nothing on it, whatever it leads elsewhere. Only the names of the queues lie on one node;
while that is away, the known ones are looked after.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys, monitors_until
from reliq.observability.monitor_state import MonitorState
from reliq.ops.topology import Node, Slots, address_of
from reliq.runtime.outage_log import OutageLog
from reliq.runtime.pieces import grouped
from reliq.transport.store import Store
from reliq_monitor.duties import COMMON
from reliq_monitor.node_monitor import NodeMonitor
from reliq_monitor.place import Place
from reliq_monitor.server_watch import Sightings

log = logging.getLogger("reliq.monitor")

_MAP_EVERY = 1.0  #: seconds between two looks at the slot map
_LAST_WORDS = 5.0  #: seconds that a loop has to leave its queues to the others


@dataclass(slots=True)
class _Part:
    """One loop, and the queues that it shares with the other monitors."""

    monitor: NodeMonitor
    stopping: threading.Event
    thread: threading.Thread

    def end(self) -> None:
        self.stopping.set()
        self.monitor.interrupt()


@dataclass(frozen=True, slots=True)
class _Map:
    """Which queues lie on which node."""

    slots: Slots
    names: Sequence[str]
    by_node: Mapping[Node | None, Sequence[str]]  #: None: of no known node

    @classmethod
    def of(cls, slots: Slots, names: Sequence[str]) -> "_Map":
        return cls(slots, names, grouped((slots.node_of(f"{{{name}}}"), name) for name in names))


class ClusterMonitor:
    """The loops of one monitor for the nodes of a cluster, and for the work that several nodes take part in."""

    def __init__(self, store: Store, interval: float, make: Callable[[Place], NodeMonitor]) -> None:
        self._store = store
        self._interval = interval
        self._make = make
        self._connection = store.connection("reliq-monitor")
        self._outage = OutageLog(log, "duty=queues")
        self._names_fail = False
        self._name_failures = 0
        self._sightings = Sightings()
        self._parts: dict[object, _Part] = {}  #: by tag
        self._map: _Map | None = None
        self._next_map = 0.0  #: by time.monotonic()

    @property
    def parts(self) -> Sequence[NodeMonitor]:
        """The loops."""
        return [part.monitor for part in list(self._parts.values())]

    def state(self) -> MonitorState:
        """Return the state of all loops; a node that is away fails too, and so do the names of the queues."""
        parts = self.parts
        state = MonitorState.together([part.state() for part in parts])
        away = {("node", address_of(part.place.node)) for part in parts if part.away and part.place.node}
        names = {("queues", "")} if self._names_fail else set()
        failures = Counter(state.failures)
        failures.update(queues=self._name_failures)  # `+` would leave out the duties that never failed
        return replace(state, failures=failures, failing=state.failing | away | names)

    def run(self, stopping: threading.Event) -> None:
        """Have a loop for each node until `stopping` is set."""
        try:
            while not stopping.is_set():
                self._read_map()
                self._divide()
                stopping.wait(self._interval)
        finally:
            for part in self._parts.values():
                part.stopping.set()
            for part in self._parts.values():
                part.thread.join(_LAST_WORDS)
            self._connection.close()

    def _read_map(self) -> None:
        if time.monotonic() >= self._next_map:  # a slot that has moved is told only to who asks for one of its keys
            self._next_map = time.monotonic() + _MAP_EVERY
            self._store.learn(None)
        known = self._map
        names = self._read_names()
        slots = self._store.slots or (known.slots if known else None)
        if names is None:
            names = known.names if known else []
        if slots is not None and (known is None or slots is not known.slots or names != known.names):
            self._map = _Map.of(slots, names)

    def _read_names(self) -> Sequence[str] | None:
        """Read the names of all queues; None if they cannot be read now."""
        try:
            names: list[str] = self._store.call(ops.queue_names(), self._connection, timeout=0.0)
        except ReliqError as error:
            self._outage.failed(error)
            self._names_fail = True
            self._name_failures += 1
            return None
        self._outage.over()
        self._names_fail = False
        return names

    def _divide(self) -> None:
        """Start the loops of nodes that have come, and end those of nodes that have gone."""
        if self._map is None:
            return
        places = {place.tag: place for place in self._places(self._map.slots)}
        for tag, part in list(self._parts.items()):
            if tag not in places or places[tag].node != part.monitor.place.node:
                self._parts.pop(tag).end()
        for tag, place in places.items():
            if tag not in self._parts:
                monitor, stopping = self._make(place), threading.Event()
                thread = threading.Thread(target=monitor.run, args=(stopping,), name=place.title, daemon=True)
                self._parts[tag] = _Part(monitor, stopping, thread)
                thread.start()

    def _places(self, slots: Slots) -> Iterator[Place]:
        for node in slots.nodes:
            yield Place(
                _tag_on(node, slots), node, self._names_on(node), self._every_name, (), self._away, self._sightings
            )
        for work in COMMON:
            yield Place(work, None, lambda: (), self._every_name, (work,), self._away)

    def _names_on(self, node: Node) -> Callable[[], Sequence[str]]:
        return lambda: self._map.by_node.get(node, ()) if self._map else ()

    def _every_name(self) -> Sequence[str]:
        return self._map.names if self._map else ()

    def _away(self, keys: QueueKeys) -> bool:
        """Whether the node of a queue cannot be reached, or does not answer."""
        node = self._map.slots.node_of(keys.jobs) if self._map else None
        return node is None or any(part.unresponsive for part in self.parts if part.place.node == node)


def _tag_on(node: Node, slots: Slots) -> str:
    """Return the hash tag of the monitors of a node: the first number with a slot there."""
    return next(tag for tag in map(str, range(1_000_000)) if slots.node_of(monitors_until(tag)) == node)
