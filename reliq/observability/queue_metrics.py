"""The metrics of queues, from their statistics. Needs prometheus-client."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, Metric

from reliq.contract.counters import COUNTERS, Counter
from reliq.contract.outcomes import REASONS
from reliq.contract.values import PRIORITIES
from reliq.model.stats import STATES, Stats
from reliq.ops.schema import Counter as Name
from reliq.runtime.families import gauge

_LIMITS = ("held", "breaker", "rate", "concurrency")
_GAUGES: dict[str, Callable[[Stats], float]] = {
    "reliq_queue_oldest_ready_age_seconds": lambda one: one.oldest_ready_age,
    "reliq_queue_waiting_messages": lambda one: one.waiting,
    "reliq_queue_cycle_members": lambda one: one.members,
    "reliq_queue_overdue_seconds": lambda one: one.overdue,
    "reliq_queue_schedules": lambda one: one.schedules,
    "reliq_schedule_next_tick_timestamp_seconds": lambda one: one.next_tick,
    "reliq_schedule_overdue_seconds": lambda one: one.tick_overdue,
    "reliq_queue_consumers": lambda one: one.consumers,
    "reliq_queue_paused": lambda one: one.paused,
    "reliq_queue_breaker_open": lambda one: {"open": 1.0, "half_open": 0.5}.get(one.breaker, 0.0),
    "reliq_queue_max_length": lambda one: one.max_length,
}


def _counted(counter: Counter, readings: Sequence[Stats]) -> Metric:
    """Return the metric of a counter; that of the dead letters has the reason as a label."""
    by_reason = counter.name == Name.DEAD_LETTERED
    metric = CounterMetricFamily(counter.metric, counter.help, labels=["queue", "reason"] if by_reason else ["queue"])
    for one in readings:
        if by_reason:
            for reason in REASONS:
                metric.add_metric([one.queue, reason], one.counters.get(Name.dead(reason), 0))
        else:
            metric.add_metric([one.queue], one.counters.get(counter.name, 0))
    return metric


def of_queues(readings: Sequence[Stats]) -> Iterator[Metric]:
    """Return the metrics of queues: the counters of the contract, and gauges of what is there."""
    yield from (_counted(one, readings) for one in COUNTERS if one.metric)
    states, ready = gauge("reliq_queue_messages"), gauge("reliq_queue_ready_messages")
    limited, missing = gauge("reliq_queue_limited_messages"), gauge("reliq_audit_mismatch_messages")
    for one in readings:
        for state in STATES:
            states.add_metric([one.queue, state], getattr(one, state))
        for priority in PRIORITIES:
            ready.add_metric([one.queue, priority], getattr(one, priority))
        for reason in _LIMITS if one.limited_by else ():
            limited.add_metric([one.queue, reason], one.ready if one.limited_by == reason else 0)
        if one.exact:
            missing.add_metric([one.queue], one.missing)
    yield from (states, ready, limited, missing)
    for name, value_of in _GAUGES.items():
        metric = gauge(name)
        for one in readings:
            metric.add_metric([one.queue], value_of(one))
        yield metric
