"""Metrics of workers, exported by monitors: who they are, how fast they are. Needs prometheus-client."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from reliq.errors import ReliqError
from reliq.protocol.workers import every_worker
from reliq.runtime.families import gauge
from reliq.runtime.looking import looking
from reliq.transport.store import Store

MOST_WORKERS = 1000  #: workers that are exported
_PATIENCE = 1.0  #: seconds for which a scrape tries to reach Redis


class WorkerCollector(Collector):
    """Collects a gauge of who each worker is, and one of what it handles."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Read the workers; without Redis there are no metrics."""
        info, rate = gauge("reliq_worker_info"), gauge("reliq_worker_messages_per_second")
        try:
            with looking():
                found = self._store.run(every_worker(), timeout=_PATIENCE)
        except ReliqError:
            return
        for one in found[:MOST_WORKERS]:
            if one.process is not None:
                here = one.process
                info.add_metric([one.id, here.host, str(here.pid), here.title, here.version], 1)
                rate.add_metric([one.id], one.rate)
        yield from (info, rate)
