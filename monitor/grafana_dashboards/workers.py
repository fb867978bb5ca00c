"""The dashboard Workers: running and dead workers, and how fast a death was noticed."""

from grafana_dashboards.overview import HANDLERS_BUSY, LAST_SCAN
from grafana_dashboards.panels import QUEUE, Lines, Number, Page, quantile, quantiles, rate, worst

MONITOR = (
    Number(
        "Monitors scraped",
        "Processes with a monitor that Prometheus reaches. Any number is correct; two survive the loss of one.",
        "count(reliq_monitor_leading)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Leading",
        "Monitors that lead a share of the queues; the others are spares.",
        "sum(reliq_monitor_leading)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Queues led",
        "The queues of all monitors together: all there are, and for up to 2 s others when a monitor comes or goes.",
        "sum(reliq_monitor_led_queues)",
    ),
    Number(
        "Taken over, 1 h",
        "Queues that a monitor took over from another one: it was stopped, killed, paused or starved of CPU.",
        "sum(increase(reliq_monitor_queues_taken_over_total[1h]))",
    ),
    LAST_SCAN,
    Number("Scan time", "How long the last scan of all queues took.", "max(reliq_monitor_scan_seconds)", unit="s"),
    Number(
        "Delayed, overdue",
        "How late the most overdue delayed message is. Runbook: docs/runbooks/delayed-overdue.md",
        worst("reliq_queue_overdue_seconds"),
        unit="s",
        bad=10,
    ),
    Number(
        "Leases lost, 1 h",
        "Live consumers that lost their lease: paused, starved of CPU, or cut off. What they held may have run twice. "
        "Runbook: docs/runbooks/lease-lost.md",
        f"sum(max by (queue) (increase(reliq_lease_lost_total{{{QUEUE}}}[1h])))",
        bad=1,
    ),
)
RECOVERY = (
    Lines(
        "Time to recover",
        "From when a worker vanished until its messages were back. Killed: under 2 s. Hung: its lease and 2 scans.",
        quantiles("reliq_recovery_seconds"),
        unit="s",
    ),
    Lines(
        "Reclaimed",
        "Messages per second taken back from vanished workers, by queue. A steady line is a crash loop. "
        "Runbook: docs/runbooks/crash-loop.md",
        {"{{queue}}": rate("reliq_messages_reclaimed", by="queue")},
        unit="ops",
    ),
    Lines(
        "Lost leases and conflicts",
        "A second. Conflicts: settled and reclaimed at the same moment, compensated at once; they need a server or "
        "a proxy that does not honour WATCH.",
        {"leases lost": rate("reliq_lease_lost"), "conflicts": rate("reliq_reclaim_conflicts")},
        unit="ops",
    ),
)
SCHEDULES = (
    Lines(
        "Ticks sent late",
        "From the time of a tick until its message was ready.",
        quantiles("reliq_schedule_lateness_seconds"),
        unit="s",
    ),
    Lines(
        "Sent and missed",
        "Per second. Missed: no monitor ran or the queue was full, and the catch-up policy leaves the tick out.",
        {"sent": rate("reliq_schedule_fired"), "missed": rate("reliq_schedule_ticks_missed")},
        unit="ops",
    ),
    Lines(
        "Overdue",
        "How long the first schedule of a queue has been due. Runbook: docs/runbooks/schedules-overdue.md",
        {"{{queue}}": f"max by (queue) (reliq_schedule_overdue_seconds{{{QUEUE}}})"},
        unit="s",
    ),
)
WORKERS = (
    Lines(
        "Consumers",
        "Consumers that may hold messages, by queue; every worker process is one for each of its queues.",
        {"{{queue}}": f"max by (queue) (reliq_queue_consumers{{{QUEUE}}})"},
    ),
    HANDLERS_BUSY,
    Lines(
        "Workers wanted",
        "Workers needed so that no message waits longer than 30 s; the value for the autoscaler.",
        {"{{queue}}": f"max by (queue) (reliq_desired_workers{{{QUEUE}}})"},
    ),
    Lines(
        "Runs",
        "Handlers started per second, by queue.",
        {"{{queue}}": f"sum by (queue) (rate(reliq_message_process_seconds_count{{{QUEUE}}}[$__rate_interval]))"},
        unit="ops",
        width=12,
    ),
    Lines(
        "Handling, 95 %",
        "The 95th percentile of the run time, by queue.",
        {"{{queue}}": quantile("reliq_message_process_seconds", 0.95, by="queue")},
        unit="s",
        width=12,
    ),
)

WORKERS_PAGE = Page(
    "workers",
    "reliq / Workers and monitor",
    "Running and dead workers, and how fast a death was noticed.",
    {"Monitor": MONITOR, "Recovery": RECOVERY, "Schedules": SCHEDULES, "Workers": WORKERS},
)
