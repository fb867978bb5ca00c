"""Metrics of single partitions, on demand: all other metrics are of whole queues. Needs prometheus-client."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout
from reliq.model.stats import STATES, Stats
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import read_homes
from reliq.runtime.families import gauge
from reliq.runtime.looking import looking
from reliq.transport.store import Store

_PATIENCE = 1.0  #: seconds for which a scrape tries to reach Redis


class PartitionCollector(Collector):
    """Collects the gauges of each partition of all queues that have several."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Read the partitions. One that cannot be read has no metrics."""
        messages = gauge("reliq_partition_messages")
        oldest = gauge("reliq_partition_oldest_ready_age_seconds")
        consumers = gauge("reliq_partition_consumers")
        with looking():
            readings = list(self._readings())
        for name, one in readings:
            for state in STATES:
                messages.add_metric([one.queue, name, state], getattr(one, state))
            oldest.add_metric([one.queue, name], one.oldest_ready_age)
            consumers.add_metric([one.queue, name], one.consumers)
        yield from (messages, oldest, consumers)

    def _readings(self) -> Iterator[tuple[str, Stats]]:
        try:
            queues = self._store.run(every_queue(), timeout=_PATIENCE)
        except ReliqError:
            return
        for queue, layout in self._layouts(queues):
            if layout.several:
                try:
                    yield from self._store.run(read_homes(queue, layout), timeout=_PATIENCE).items()
                except ReliqError:
                    continue

    def _layouts(self, queues: Sequence[str]) -> Iterator[tuple[str, Layout]]:
        """Read the layouts in one round trip or, if one of them cannot be read, one by one."""
        try:
            layouts = self._store.call([ops.layout(QueueKeys(queue)) for queue in queues], timeout=_PATIENCE)
            yield from zip(queues, layouts, strict=True)
        except ReliqError:
            if len(queues) > 1:
                half = len(queues) // 2
                yield from self._layouts(queues[:half])
                yield from self._layouts(queues[half:])
