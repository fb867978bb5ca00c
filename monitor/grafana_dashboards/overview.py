"""The dashboard Overview: is anything lost or stuck?"""

from grafana_dashboards.panels import QUEUE, Lines, Number, Page, here, quantile, quantiles, rate, worst

LAST_SCAN = Number(
    "Since the last scan",
    "How long ago a monitor last looked for dead workers. Runbook: docs/runbooks/monitor-stale.md",
    "time() - max(reliq_monitor_last_scan_timestamp_seconds)",
    unit="s",
    bad=30,
)
HANDLERS_BUSY = Lines(
    "Handlers busy",
    "Handlers that run at once, on average.",
    {"{{queue}}": f"sum by (queue) (rate(reliq_message_process_seconds_sum{{{QUEUE}}}[$__rate_interval]))"},
)
LOST_OR_STUCK = (
    Number(
        "Messages missing",
        "Enqueued, and neither ready, processing, delayed, dead nor counted as gone. Not 0 means that the promise is "
        "broken, or that a program bypassed the enqueue script. Runbook: docs/runbooks/audit-mismatch.md",
        f"sum(max by (queue) (abs(reliq_audit_mismatch_messages{{{QUEUE}}})))",
        bad=1,
    ),
    Number(
        "Oldest ready",
        "Age of the message that has waited longest. Grows when workers are too few, too slow or gone. "
        "Runbook: docs/runbooks/oldest-message-too-old.md",
        worst("reliq_queue_oldest_ready_age_seconds"),
        unit="s",
        bad=300,
    ),
    Number(
        "Delayed, overdue",
        "How late the most overdue delayed message or retry is. More than a second means that no monitor works. "
        "Runbook: docs/runbooks/delayed-overdue.md",
        worst("reliq_queue_overdue_seconds"),
        unit="s",
        bad=10,
    ),
    LAST_SCAN,
    Number(
        "Dead letters",
        "Dead letters that wait for an operator: `reliq dead list QUEUE`. Runbook: docs/runbooks/messages-dying.md",
        here("dead"),
        bad=1,
    ),
    Number(
        "Alerts firing",
        "Alerts of monitor/prometheus/rules.yml that fire now.",
        'count(ALERTS{alertname=~"Reliq.*",alertstate="firing"}) or vector(0)',
        bad=1,
    ),
)
FLOW = (
    Lines(
        "Messages by state",
        "Ready waits for a worker, processing is held by one, delayed waits for its time, dead waits for an operator.",
        {state: here(state) for state in ("ready", "processing", "delayed", "dead")},
    ),
    Lines(
        "In and out",
        "Messages per second. While enqueued stays above acked, the queue grows.",
        {name: rate(f"reliq_messages_{name}") for name in ("enqueued", "claimed", "acked")},
        unit="ops",
    ),
    Lines(
        "Trouble",
        "Messages per second that failed (retried), came back from vanished workers (reclaimed), died, or were refused "
        "because a queue was full (rejected), or were published without a bound queue (unroutable).",
        {
            **{name: rate(f"reliq_messages_{name}") for name in ("retried", "reclaimed", "dead_lettered", "rejected")},
            "unroutable": "max(rate(reliq_messages_unroutable_total[$__rate_interval]))",
        },
        unit="ops",
    ),
    Lines(
        "Flows",
        "Flows that have not ended, of the oldest 1,000: open ones wait for their messages, cancelled ones for those "
        "that run, abandoned ones were not sent as a whole.",
        {"{{state}}": "max by (state) (reliq_flows)"},
        width=24,
    ),
)
LATENCY = (
    Lines(
        "Wait",
        "Time from the first send of a message until its handler started; delays and retries included.",
        quantiles("reliq_message_wait_seconds"),
        unit="s",
        width=12,
    ),
    Lines(
        "Handling", "Duration of one run of a handler.", quantiles("reliq_message_process_seconds"), unit="s", width=12
    ),
)
CAPACITY = (
    Lines(
        "Fullest queues",
        "Ready messages of the ten longest queues.",
        {"{{queue}}": f'topk(10, max by (queue) (reliq_queue_messages{{{QUEUE},state="ready"}}))'},
    ),
    HANDLERS_BUSY,
    Lines(
        "Consumers and workers wanted",
        "Existing consumers, and the workers needed so that no message waits longer than 30 s.",
        {
            "{{queue}}: consumers": f"max by (queue) (reliq_queue_consumers{{{QUEUE}}})",
            "{{queue}}: wanted": f"max by (queue) (reliq_desired_workers{{{QUEUE}}})",
        },
    ),
)
HTTP = (
    Lines(
        "Requests",
        "HTTP requests per second, by status. Empty when no `reliq api` is scraped.",
        {"{{status}}": "sum by (status) (rate(reliq_http_request_seconds_count[$__rate_interval]))"},
        unit="reqps",
        width=12,
    ),
    Lines(
        "Request time, 95 %",
        "The 95th percentile of the request time, by route; a claim waits for messages on purpose.",
        {"{{route}}": quantile("reliq_http_request_seconds", 0.95, matchers="", by="route")},
        unit="s",
        width=12,
    ),
)

OVERVIEW = Page(
    "overview",
    "reliq / Overview",
    "Is anything lost or stuck? Then flow, latency, capacity and HTTP of all queues.",
    {"Is anything lost or stuck?": LOST_OR_STUCK, "Flow": FLOW, "Latency": LATENCY, "Capacity": CAPACITY, "HTTP": HTTP},
)
