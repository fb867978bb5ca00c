"""Metrics for Prometheus: the state of the queues at the moment of the scrape, and the histograms of this process.

Worker, monitor and API export metrics; the command line creates an `Exporter` and serves it. Needs the package
prometheus-client (the extras `monitor` and `api`), which nothing else in here imports.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from reliq import ops
from reliq._version import __version__
from reliq.errors import InvalidSetting, RedisUnsuitable, ReliqError
from reliq.features.flows.metrics import flows_by_state
from reliq.features.staging.metrics import latest_job, staged_messages
from reliq.features.topics.metrics import unroutable_messages
from reliq.model.keys import instance_of, logical_name
from reliq.model.stats import Stats
from reliq.observability.autoscale import Demand
from reliq.observability.histograms import PROCESS, Measurements, totals
from reliq.observability.monitor_state import MonitorState
from reliq.observability.queue_metrics import of_queues
from reliq.ops import Steps
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import read_readable
from reliq.runtime.families import counter, gauge, histogram
from reliq.runtime.looking import Missing, looking
from reliq.transport.store import Store

MOST_QUEUES = 1000  #: queues that are exported; the number of all queues is exported as well
_PATIENCE = 1.0  #: seconds for which a scrape tries to reach Redis

#: What features export of queues; each gets what runs steps, with the patience of a scrape.
OF_FEATURES: tuple[Callable[[Callable[[Steps[Any]], Any], Sequence[str]], Iterable[Metric]], ...] = (
    staged_messages,
    latest_job,
    unroutable_messages,
    flows_by_state,
)

_INFO_GAUGES: dict[str, Callable[[Mapping[str, str]], float]] = {
    "reliq_redis_memory_used_bytes": lambda info: float(info["used_memory"]),
    "reliq_redis_memory_limit_bytes": lambda info: float(info["maxmemory"]),
    "reliq_redis_eviction_safe": lambda info: info.get("maxmemory_policy", "noeviction") == "noeviction",
    "reliq_redis_append_only": lambda info: info["aof_enabled"] == "1",
    "reliq_redis_writes_to_disk": lambda info: (
        "err" not in (info["aof_last_write_status"], info["rdb_last_bgsave_status"])
    ),
    "reliq_redis_clients": lambda info: float(info["connected_clients"]),
    "reliq_redis_replicas": lambda info: float(info["connected_slaves"]),
}
_INFO_COUNTERS = {
    "reliq_redis_commands_total": "total_commands_processed",
    "reliq_redis_evicted_keys_total": "evicted_keys",
}
_INFO_SECTIONS = ("memory", "persistence", "clients", "replication", "stats")


class Exporter(Collector):
    """Collects the metrics of a scrape. Thread-safe."""

    def __init__(
        self,
        store: Store,
        measurements: Sequence[Measurements] = (),
        *,
        slots: Mapping[str, int] | None = None,
        monitor: Callable[[], MonitorState] | None = None,
        more: Sequence[Collector] = (),
    ) -> None:
        """`monitor`: returns the state of the monitor in this process.

        `slots`: for a worker, the handlers that it runs at once, by queue; only these queues are exported then.

        `more`: collectors that read Redis too. They are not asked while it is away: each would wait for its answer, and
        Prometheus gives up a scrape after 10 seconds.
        """
        self._store = store
        self._measurements = measurements
        self._queues = None if slots is None else sorted(slots)
        self._known: list[str] = []  #: the queues there were at the latest scrape
        self._demands = {queue: Demand(at_once) for queue, at_once in (slots or {}).items()}
        self._monitor = monitor
        self._more = more
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Collect all metrics. While Redis is away: reliq_redis_up is 0, with the metrics of this process only.

        Without a part of a cluster: the metrics of the queues that answer as a whole.
        """
        series = totals(self._measurements)
        yield _gauge("reliq_build_info", 1, version=__version__)
        try:
            with looking() as missing:
                scraped = list(self._scrape(missing, series))
        except ReliqError:
            yield _gauge("reliq_redis_up", 0)
        else:
            yield _gauge("reliq_redis_up", 1)
            yield from scraped
            for one in self._more:
                yield from one.collect()
        if self._monitor is not None:
            yield from _of_monitor(self._monitor())
        yield from _histograms(series)

    def _scrape(self, missing: Missing, series: Sequence[Any]) -> Iterator[Metric]:
        names = self._queues
        if names is None:  # queues of broadcasts come and go with their processes: too many for a label
            self._known = self._store.run(every_queue(self._known), timeout=_PATIENCE)
            names = [name for name in self._known if instance_of(name) is None]
        seen, refused = self._store.run(read_readable(names[:MOST_QUEUES]), timeout=_PATIENCE)
        readings = [one for one in seen if not one.unseen]  # counters of a part would look like a reset
        there = {one.queue for one in readings}
        yield _gauge("reliq_queues", len(names))
        unread = [*refused, *(name for name in names[:MOST_QUEUES] if name not in {*there, *refused})]
        yield _one_each("reliq_queue_unreadable", unread)
        yield from of_queues(readings)
        yield from self._desired(readings, series)
        for of_feature in OF_FEATURES:
            yield from of_feature(self._run, [one.queue for one in readings])
        yield from _of_redis(self._info())
        yield _one_each("reliq_redis_node_away", missing.nodes)

    def _run(self, steps: Steps[Any]) -> Any:
        return self._store.run(steps, timeout=_PATIENCE)

    def _info(self) -> dict[str, str]:
        """Read INFO; empty if a managed service forbids it."""
        try:
            answers = self._store.call(ops.server_info(*_INFO_SECTIONS), timeout=_PATIENCE)
        except RedisUnsuitable:
            return {}
        return {name: value for answer in answers for name, value in answer.items()}

    def _desired(self, readings: Sequence[Stats], series: Sequence[Any]) -> Iterator[Metric]:
        if not self._demands:
            return
        ran = {labels[0]: (sum(counts), total) for family, labels, counts, total in series if family is PROCESS}
        metric = gauge("reliq_desired_workers")
        for reading in readings:
            wanted = self._demands[reading.queue].note(reading, *ran.get(reading.queue, (0, 0.0)))
            metric.add_metric([reading.queue], wanted)
        yield metric

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return the body of /metrics and its content type for this Accept header. Reads Redis: blocks."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def serve(self, port: int, host: str) -> "Server":
        """Serve /metrics on this port from a thread; 0 = a free port. Raises InvalidSetting if the port is taken."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except (OSError, OverflowError) as error:
            raise InvalidSetting(f"metrics cannot be served on {host}, port {port}: {error}") from None
        return Server(server)


class Server:
    """A running server of /metrics. A context: leaving it stops the server."""

    def __init__(self, server: Any) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.server_port
        return port

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _gauge(name: str, value: float, **labels: str) -> Metric:
    metric = gauge(name)
    metric.add_metric(list(labels.values()), value)
    return metric


def _counter(name: str, value: float) -> Metric:
    metric = counter(name)
    metric.add_metric([], value)
    return metric


def _one_each(name: str, names: Iterable[str]) -> Metric:
    """Return a gauge that is 1 for each of these."""
    metric = gauge(name)
    for one in names:
        metric.add_metric([one], 1)
    return metric


def _of_redis(info: Mapping[str, str]) -> Iterator[Metric]:
    for name, value_of in _INFO_GAUGES.items():
        try:
            yield _gauge(name, value_of(info))
        except KeyError:  # not every service reports all fields
            continue
    for name, field in _INFO_COUNTERS.items():
        if field in info:
            yield _counter(name, float(info[field]))


def _of_monitor(monitor: MonitorState) -> Iterator[Metric]:
    yield _gauge("reliq_monitor_leading", monitor.leading)
    yield _gauge("reliq_monitor_led_queues", monitor.led_queues)
    yield _gauge("reliq_monitor_members", monitor.members)
    yield _counter("reliq_monitor_queues_taken_over_total", monitor.taken_over)
    if monitor.last_scan_at:
        yield _gauge("reliq_monitor_last_scan_timestamp_seconds", monitor.last_scan_at)
        yield _gauge("reliq_monitor_scan_seconds", monitor.last_scan_took)
    yield _counter("reliq_redis_clock_jumps_total", monitor.clock_jumps)
    failures, failing = counter("reliq_monitor_duty_failures_total"), gauge("reliq_monitor_duty_failing")
    for duty, count in sorted(monitor.failures.items()):
        failures.add_metric([duty], count)
    now = {(duty, logical_name(queue)) for duty, queue in monitor.failing}
    for duty, queue in sorted({(duty, "") for duty in monitor.failures} | now)[:MOST_QUEUES]:
        failing.add_metric([duty, queue], float((duty, queue) in now))
    yield from (failures, failing)


def _histograms(series: Sequence[Any]) -> Iterator[Metric]:
    metrics: dict[str, Any] = {}
    for family, labels, counts, total in series:
        metric = metrics.get(family.name)
        if metric is None:
            metric = metrics[family.name] = histogram(family.name)
        bounds = [*(str(float(bound)) for bound in family.bounds), "+Inf"]
        metric.add_metric(list(labels), list(zip(bounds, accumulate(counts), strict=True)), total)
    yield from metrics.values()
