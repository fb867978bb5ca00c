"""A monitor: all duties for the queues of a Redis server or cluster, shared with any number of other monitors."""

import threading
from functools import partial
from typing import TypeVar

from reliq.contract import values
from reliq.observability.histograms import Measurements
from reliq.observability.monitor_state import MonitorState
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

    def look(self) -> None:
        """Look at all queues, at the server and at the consumers once."""
        self._whole.look()

    def perform(self, duty: type[Duty[T]]) -> T:
        """Perform one duty once, on what the latest look found; return what its turn returns."""
        return self._whole.perform(duty)

    def state(self) -> MonitorState:
        """Return what it has done and sees now, as its metrics show it."""
        return (self._nodes or self._whole).state()

    def close(self) -> None:
        """Close the connections of `look` and `perform`."""
        self._whole.close()
