"""The metrics for Prometheus, but for the counters of queues, which `reliq.contract.counters` declares."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Declared:
    """A metric: its name as Prometheus shows it, its labels, and what its value is. Base units, seconds and bytes."""

    name: str
    labels: tuple[str, ...]
    help: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    see: str = ""  #: a link from docs/reference to the page that says more


_QUEUE = ("queue",)

#: Of queues, at most 1,000: each process exports the same values.
QUEUES = (
    Declared("reliq_queue_messages", ("queue", "state"),
             "Messages by state: prepared, ready, processing, delayed, parked, dead."),
    Declared("reliq_queue_oldest_ready_age_seconds", _QUEUE,
             "Since the next message was first sent, of the priority where that is longest; 0 if none is ready."),
    Declared("reliq_queue_ready_messages", ("queue", "priority"),
             "Ready messages that can start now, by priority: high, normal, low. A message sent into an empty queue "
             "counts as normal."),
    Declared("reliq_queue_waiting_messages", _QUEUE,
             "Ready messages that wait for another one of their key, or for others of their flow."),
    Declared("reliq_queue_cycle_members", _QUEUE, "Members of the queue's cycle.", see="../how-to/order.md#the-cycle"),
    Declared("reliq_queue_overdue_seconds", _QUEUE,
             "Since the first delayed message was due; more than a second means that no monitor works."),
    Declared("reliq_queue_schedules", _QUEUE, "Schedules with a next tick.", see="../how-to/schedules.md"),
    Declared("reliq_schedule_next_tick_timestamp_seconds", _QUEUE,
             "When the first schedule of the queue is due; 0 without one."),
    Declared("reliq_schedule_overdue_seconds", _QUEUE,
             "Since the first schedule of the queue was due; more than a second means that no monitor works."),
    Declared("reliq_queue_consumers", _QUEUE, "Consumers that may hold messages."),
    Declared("reliq_queue_paused", _QUEUE, "1 while the queue is paused."),
    Declared("reliq_queue_breaker_open", _QUEUE,
             "1 while the circuit breaker is open, 0.5 while one message is tried.",
             see="../how-to/flow.md#circuit-breaker"),
    Declared("reliq_queue_limited_messages", ("queue", "reason"),
             "Ready messages while a limit gives out nothing: held, breaker, rate, concurrency. Only of queues that "
             "are limited now.", see="../how-to/flow.md"),
    Declared("reliq_queue_max_length", _QUEUE,
             "Ready and delayed messages above which sends are refused; 0 = unlimited."),
    Declared("reliq_audit_mismatch_messages", _QUEUE,
             "Messages enqueued that are nowhere, neither here nor counted as gone: above 0 lost, below 0 never "
             "enqueued.", see="../operations/metrics.md#the-audit"),
    Declared("reliq_desired_workers", _QUEUE,
             "Workers like this one that would keep every message of the queue from waiting longer than 30 s; at least "
             "as many as handle messages now.",
             see="../operations/metrics.md#desired-workers"),
    Declared("reliq_queues", (), "Queues there are; at most the first 1,000 by name are exported."),
    Declared("reliq_queue_unreadable", _QUEUE,
             "1 for a queue with a key or value that reliq did not write, or of which a cluster node is away or a slot "
             "is moving; it has no other metrics. `reliq queue stats` prints the reason."),
)  # fmt: skip

#: Of features.
FEATURES = (
    Declared("reliq_messages_unroutable_total", (),
             "Messages published that matched no binding, without an alternate queue.", "counter",
             see="../how-to/topics.md"),
    Declared("reliq_flows", ("state",),
             "Flows that have not ended, of the oldest 1,000: sending, open, cancelled, abandoned.",
             see="../how-to/durable.md#flows"),
    Declared("reliq_staged_messages", ("queue", "state"),
             "Messages of Spark jobs that are staged and not yet visible, by the state of the job: open, committed, "
             "aborted. The queue of a job of several is @several."),
    Declared("reliq_job_latest", ("queue", "what"),
             "Of the latest Spark job that has ended: rows, messages, skipped, dead, deduplicated, unroutable, bytes, "
             "and ended, in Unix seconds. The queue of a job of several is @several.", see="spark.md#results"),
)  # fmt: skip

#: Of partitions, with `--metrics-partitions`, and of workers, at most 1,000: exported by monitors.
PARTITIONS = (
    Declared("reliq_partition_messages", ("queue", "partition", "state"), "Messages of a partition, by state."),
    Declared("reliq_partition_oldest_ready_age_seconds", ("queue", "partition"),
             "Since the next message of a partition was first sent; 0 if none is ready."),
    Declared("reliq_partition_consumers", ("queue", "partition"), "Consumers that may hold messages of a partition."),
    Declared("reliq_worker_info", ("worker", "host", "pid", "title", "version"),
             "1 for each worker that says who it is."),
    Declared("reliq_worker_messages_per_second", ("worker",),
             "Messages that a worker handled between its latest two heartbeats."),
)  # fmt: skip

#: Of the process that did the work: add them up.
TIMES = (
    Declared("reliq_message_wait_seconds", _QUEUE,
             "Time from the first send of a message until its handler started; delays and retries included.",
             "histogram"),
    Declared("reliq_message_process_seconds", _QUEUE, "Duration of one run of a handler, with any outcome.",
             "histogram"),
    Declared("reliq_recovery_seconds", _QUEUE,
             "From when a holder vanished (its lease's deadline, or when its connection or process was last seen) "
             "until its message was back. One observation a message.", "histogram"),
    Declared("reliq_schedule_lateness_seconds", _QUEUE,
             "From the time of a schedule's tick, with its jitter, until its message was ready. One observation a "
             "run, by the monitor.", "histogram"),
    Declared("reliq_http_request_seconds", ("method", "route", "status"),
             "Duration of HTTP requests, long polls included; the route is its template.", "histogram"),
)  # fmt: skip

#: Of the monitor of this process.
MONITOR = (
    Declared("reliq_monitor_last_scan_timestamp_seconds", (),
             "When this monitor last finished a scan and every duty ran; a spare does not scan."),
    Declared("reliq_monitor_leading", (), "1 if this monitor leads a share of the queues, 0 if it is a spare.",
             see="../operations/monitors.md"),
    Declared("reliq_monitor_led_queues", (),
             "The queues that this monitor leads; the sum over all monitors is the number of queues."),
    Declared("reliq_monitor_members", (),
             "The monitors that share the queues, as this one sees them; 0 while it cannot read them."),
    Declared("reliq_monitor_queues_taken_over_total", (),
             "Queues that this monitor took over from one that stopped, was killed or was paused.", "counter"),
    Declared("reliq_monitor_scan_seconds", (), "How long its last scan took."),
    Declared("reliq_monitor_duty_failures_total", ("duty",), "Attempts of a duty that failed.", "counter"),
    Declared("reliq_monitor_duty_failing", ("duty", "queue"), "1 while a duty fails for a queue (none: for all).",
             see="../runbooks/monitor-duty-failing.md"),
    Declared("reliq_redis_clock_jumps_total", (), "Jumps of the Redis server's clock that this monitor saw.",
             "counter"),
)  # fmt: skip

#: Of the Redis server.
REDIS = (
    Declared("reliq_redis_up", (), "1 when Redis, or a part of a Redis Cluster, answered this scrape."),
    Declared("reliq_redis_node_away", ("node",),
             "1 for a node (host:port) of the Redis Cluster that did not answer this scrape."),
    Declared("reliq_redis_memory_used_bytes", (), "Memory Redis uses."),
    Declared("reliq_redis_memory_limit_bytes", (), "Its maxmemory; 0 = none."),
    Declared("reliq_redis_eviction_safe", (),
             "1 when maxmemory-policy is noeviction: a full Redis refuses instead of deleting queues."),
    Declared("reliq_redis_append_only", (),
             "1 when the append-only file is on: without it a restart loses what came after the last snapshot."),
    Declared("reliq_redis_writes_to_disk", (),
             "0 when the last write of the append-only file or the last snapshot failed."),
    Declared("reliq_redis_clients", (), "Connections."),
    Declared("reliq_redis_replicas", (), "Connected replicas."),
    Declared("reliq_redis_commands_total", (), "Commands processed since Redis started.", "counter"),
    Declared("reliq_redis_evicted_keys_total", (), "Keys Redis evicted since it started. Each may be a queue.",
             "counter"),
    Declared("reliq_build_info", ("version",), "The version of reliq."),
)  # fmt: skip

BY_NAME = {one.name: one for table in (QUEUES, FEATURES, PARTITIONS, TIMES, MONITOR, REDIS) for one in table}
