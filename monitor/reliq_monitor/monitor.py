"""A monitor: all duties for the queues of a Redis server or cluster, shared with any number of other monitors."""

import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TypeVar

from reliq.contract import values
from reliq.observability.histograms import Measurements
from reliq.transport.store import Store
from reliq_monitor.cluster_monitor import ClusterMonitor
from reliq_monitor.duty import Duty
from reliq_monitor.node_monitor import NodeMonitor

T = TypeVar("T")


class Monitor:
    """Performs all duties in `run`, for a share of the queues, or single ones by `perform`, for all queues."""

    def __init__(
        self,
        store: Store,
        scan_interval: float = values.SCAN_INTERVAL,
        measurements: Measurements | None = None,
        reconnect_grace: values.Duration = values.RECONNECT_GRACE,
    ) -> None:
        make = partial(NodeMonitor, store, scan_interval, measurements, reconnect_grace)
        self._whole = make()
        self._nodes = ClusterMonitor(store, scan_interval, make) if store.sharded else None

    def run(self, stopping: threading.Event) -> None:
        """Perform each duty when it is due, until `stopping` is set; wait while Redis is away."""
        (self._nodes or self._whole).run(stopping)

    # --- one duty at a time ---

    def look(self) -> None:
        """Look at all queues, at the server and at the consumers once."""
        self._whole.look()

    def perform(self, duty: type[Duty[T]]) -> T:
        """Perform one duty once, on what the latest look found; return what its turn returns."""
        return self._whole.perform(duty)

    # --- what the metrics show ---

    @property
    def failures(self) -> dict[str, int]:
        """Failed attempts by duty since the start."""
        return (self._nodes or self._whole).failures

    @property
    def failing(self) -> AbstractSet[tuple[str, str]]:
        """The duties that fail now, each with its queue; an empty text means all queues."""
        return (self._nodes or self._whole).failing

    @property
    def _parts(self) -> Sequence[NodeMonitor]:
        """The loops: one or, for a cluster, one for each node and two for what several nodes take part in."""
        return [self._whole] if self._nodes is None else self._nodes.parts

    @property
    def leading(self) -> bool:
        """Whether this monitor leads a share of the queues; otherwise it is a spare."""
        return any(part.leading for part in self._parts)

    @property
    def led_queues(self) -> int:
        """The queues that this monitor leads."""
        return sum(part.led_queues for part in self._parts)

    @property
    def members(self) -> int:
        """The monitors that share the queues, with the spares; 0 while they are not known."""
        return max((part.members for part in self._parts), default=0)

    @property
    def taken_over(self) -> int:
        """Queues that came from other monitors since the start."""
        return sum(part.taken_over for part in self._parts)

    @property
    def last_scan_at(self) -> float:
        """Seconds since the epoch: the end of the latest turn in which every duty ran; 0 before the first one.

        Of a cluster, that of the node with the oldest one, without nodes that are away, or where it is a spare.
        """
        scanning = (part for part in self._parts if part.leading and not part.away)
        return min((part.last_scan_at for part in scanning if part.last_scan_at), default=0.0)

    @property
    def last_scan_took(self) -> float:
        """Seconds."""
        return max((part.last_scan_took for part in self._parts), default=0.0)

    @property
    def clock_jumps(self) -> int:
        """Jumps of the Redis server's clock since the start."""
        return sum(part.clock_jumps for part in self._parts)
