"""The metrics of queues, from their statistics. Needs prometheus-client."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from reliq.contract.counters import COUNTERS, Counter
from reliq.contract.outcomes import REASONS
from reliq.model.stats import STATES, Stats
from reliq.ops.schema import Counter as Name

_PRIORITIES = ("high", "normal", "low")
_LIMITS = ("held", "breaker", "rate", "concurrency")
_GAUGES: dict[str, tuple[str, Callable[[Stats], float]]] = {
    "reliq_queue_oldest_ready_age_seconds": (
        "Since the next message was first sent, of the priority where that is longest; 0 when none is ready.",
        lambda one: one.oldest_ready_age),
    "reliq_queue_waiting_messages": (
        "Of the ready messages, those that wait for another message of their key, or for others of their flow.",
        lambda one: one.waiting),
    "reliq_queue_cycle_members": ("Members of the queue's cycle.", lambda one: one.members),
    "reliq_queue_overdue_seconds": (
        "Since the first delayed message was due; more than a second means that no monitor works.",
        lambda one: one.overdue),
    "reliq_queue_schedules": ("Schedules with a next tick.", lambda one: one.schedules),
    "reliq_schedule_next_tick_timestamp_seconds": (
        "When the first schedule of the queue is due; 0 without one.", lambda one: one.next_tick),
    "reliq_schedule_overdue_seconds": (
        "Since the first schedule of the queue was due; more than a second means that no monitor works.",
        lambda one: one.tick_overdue),
    "reliq_queue_consumers": ("Consumers that may hold messages.", lambda one: one.consumers),
    "reliq_queue_paused": ("1 while the queue is paused.", lambda one: one.paused),
    "reliq_queue_breaker_open": (
        "1 while the circuit breaker is open, 0.5 while one message is tried.",
        lambda one: {"open": 1.0, "half_open": 0.5}.get(one.breaker, 0.0)),
    "reliq_queue_max_length": (
        "Ready and delayed messages above which sends are refused; 0 = unlimited.", lambda one: one.max_length),
}  # fmt: skip


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


def unreadable(queues: Iterable[str]) -> Metric:
    """Return the metric of queues whose numbers could not be read."""
    metric = GaugeMetricFamily(
        "reliq_queue_unreadable",
        "1 for a queue whose numbers could not be read: see `reliq queue stats`.",
        labels=["queue"],
    )
    for queue in queues:
        metric.add_metric([queue], 1)
    return metric


def of_queues(readings: Sequence[Stats]) -> Iterator[Metric]:
    """Return the metrics of queues: the counters of the contract, and gauges of what is there."""
    yield from (_counted(one, readings) for one in COUNTERS if one.metric)
    states = GaugeMetricFamily("reliq_queue_messages", "Messages there are, by where.", labels=["queue", "state"])
    ready = GaugeMetricFamily(
        "reliq_queue_ready_messages",
        "Of the ready messages, those that may start now, by priority.",
        labels=["queue", "priority"],
    )
    limited = GaugeMetricFamily(
        "reliq_queue_limited_messages",
        "The ready messages while a limit gives out nothing, by limit; only of queues that are limited now.",
        labels=["queue", "reason"],
    )
    missing = GaugeMetricFamily(
        "reliq_audit_mismatch_messages",
        "Messages enqueued that are nowhere, neither here nor counted as gone: above 0 lost, below 0 never enqueued.",
        labels=["queue"],
    )
    for one in readings:
        for state in STATES:
            states.add_metric([one.queue, state], getattr(one, state))
        for priority in _PRIORITIES:
            ready.add_metric([one.queue, priority], getattr(one, priority))
        for reason in _LIMITS if one.limited_by else ():
            limited.add_metric([one.queue, reason], one.ready if one.limited_by == reason else 0)
        if one.exact:
            missing.add_metric([one.queue], one.missing)
    yield from (states, ready, limited, missing)
    for name, (text, value_of) in _GAUGES.items():
        gauge = GaugeMetricFamily(name, text, labels=["queue"])
        for one in readings:
            gauge.add_metric([one.queue], value_of(one))
        yield gauge
