"""A monitor: all duties for the queues of a Redis server or cluster, shared with any number of other monitors."""

import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from reliq.contract import values
from reliq.observability.histograms import Measurements
from reliq.transport.store import Store
from reliq_monitor.cluster_monitor import ClusterMonitor
from reliq_monitor.node_monitor import NodeMonitor
from reliq_monitor.returns import Scan


class Monitor:
    """Performs the monitor's duties: all of them in `run`, for a share of the queues, or single ones by their methods,
    for all queues.
    """

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

    def scan(self) -> Scan:
        """Check every consumer of every queue once, and take back the messages of vanished ones."""
        return self._whole.scan()

    def promote(self) -> tuple[int, float | None]:
        """Promote due messages; return how many, and the seconds until the next is due (None: after the next look)."""
        return self._whole.promote()

    def finish_staged(self) -> int:
        """Finish staged jobs with a dead leader; return how many messages became visible."""
        return self._whole.finish_staged()

    def ask_undecided(self) -> tuple[int, int]:
        """Put questions about overdue prepared messages; return how many, and how many messages died undecided."""
        return self._whole.ask_undecided()

    def end_batches(self) -> int:
        """Send what follows the batches with messages that have all ended; return how many batches that were."""
        return self._whole.end_batches()

    def tend_partitions(self) -> int:
        """Bring changes of numbers of partitions on; return how many messages went on by that."""
        return self._whole.tend_partitions()

    def send_ticks(self) -> int:
        """Send the due ticks of schedules, and prepare the next ones; return how many messages were sent."""
        return self._whole.send_ticks()

    def tidy(self) -> bool:
        """Trim dead letters as the queues' policies say, and forget producers that fell silent.

        Return whether more is left to trim than one turn allows.
        """
        return self._whole.tidy()

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

        Of a cluster, that of the node with the oldest one, without nodes that are away.
        """
        return min((part.last_scan_at for part in self._parts if part.last_scan_at and not part.away), default=0.0)

    @property
    def last_scan_took(self) -> float:
        """Seconds."""
        return max((part.last_scan_took for part in self._parts), default=0.0)

    @property
    def clock_jumps(self) -> int:
        """Jumps of the Redis server's clock since the start."""
        return sum(part.clock_jumps for part in self._parts)
