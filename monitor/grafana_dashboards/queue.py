"""The dashboard Queue: one queue in all details. Best with one queue selected."""

from grafana_dashboards.panels import QUEUE, Lines, Number, Page, here, quantiles, rate, worst
from reliq.contract.outcomes import DEATHS

NOW = (
    Number("Ready", "Messages that wait for a worker.", here("ready")),
    Number("Processing", "Messages that a consumer holds, running or about to.", here("processing")),
    Number("Delayed", "First deliveries and retries that wait for their time.", here("delayed")),
    Number("Dead", "Messages that do not run unless they are redriven.", here("dead"), bad=1),
    Number(
        "Oldest ready",
        "Age of the message that has waited longest.",
        worst("reliq_queue_oldest_ready_age_seconds"),
        unit="s",
        bad=300,
    ),
    Number(
        "Paused",
        "1 while the queue is paused: sends go on, nothing is started. `reliq queue resume QUEUE` ends it.",
        worst("reliq_queue_paused"),
        bad=1,
    ),
    Number(
        "Breaker",
        "1 while the breaker is open, 0.5 while one message is tried. `reliq queue breaker QUEUE close` ends it.",
        worst("reliq_queue_breaker_open"),
        bad=0.5,
    ),
)
FLOW = (
    Lines(
        "Sent",
        "A second: accepted, answered with an earlier id (deduplicated), gone for a newer one (replaced), refused "
        "because the queue is full (rejected).",
        {name: rate(f"reliq_messages_{name}") for name in ("enqueued", "deduplicated", "replaced", "rejected")},
        unit="ops",
    ),
    Lines(
        "Handled",
        "A second: taken by consumers, done, to be tried again, put back on purpose (requeued), handed back untouched "
        "(released).",
        {name: rate(f"reliq_messages_{name}") for name in ("claimed", "acked", "retried", "requeued", "released")},
        unit="ops",
    ),
    Lines(
        "Moved by the monitor",
        "A second: delayed messages that became ready (promoted), messages of vanished workers (reclaimed).",
        {name: rate(f"reliq_messages_{name}") for name in ("promoted", "reclaimed")},
        unit="ops",
    ),
    Lines(
        "Died, by reason",
        f"Messages a second. {'; '.join(f'{one.name}: {one.text}' for one in DEATHS)}.",
        {"{{reason}}": rate("reliq_messages_dead_lettered", by="reason")},
        unit="ops",
        width=12,
    ),
    Lines(
        "Removed or revived by operators",
        "A second: dead letters put back (redriven), purged and trimmed, messages cancelled and purged.",
        {
            "redriven": rate("reliq_messages_redriven"),
            "cancelled": rate("reliq_messages_cancelled"),
            "purged": rate("reliq_messages_purged"),
            "dead letters purged": rate("reliq_dead_letters_purged"),
            "dead letters trimmed": rate("reliq_dead_letters_trimmed"),
        },
        unit="ops",
        width=12,
    ),
)
ORDER = (
    Lines(
        "Ready, by priority",
        "Messages that may start now. Of 21 that start 16 are high, 4 normal and 1 low, while there are some of each.",
        {"{{priority}}": f"sum by (priority) (max by (queue, priority) (reliq_queue_ready_messages{{{QUEUE}}}))"},
    ),
    Lines(
        "Waiting for their key",
        "Ready messages behind another one of their key. When they grow while the rest is empty, one key has more to "
        "do than one handler at a time can do.",
        {"{{queue}}": f"max by (queue) (reliq_queue_waiting_messages{{{QUEUE}}})"},
    ),
    Lines(
        "Cycle: members, and turns a second",
        "Members of the cycle, and how many are put back per second: members divided by turns is the time of a round.",
        {
            "{{queue}}: members": f"max by (queue) (reliq_queue_cycle_members{{{QUEUE}}})",
            "{{queue}}: turns": f"max by (queue) (rate(reliq_messages_requeued_total{{{QUEUE}}}[$__rate_interval]))",
        },
    ),
)
LATENCY = (
    Lines("Wait", "From the first send to the start.", quantiles("reliq_message_wait_seconds"), unit="s", width=12),
    Lines("Handling", "One run of the handler.", quantiles("reliq_message_process_seconds"), unit="s", width=12),
)
CAPACITY = (
    Lines(
        "Time until empty",
        "Ready messages divided by how much faster they leave than come; no line while the queue grows.",
        {
            "{{queue}}": f'max by (queue) (reliq_queue_messages{{{QUEUE},state="ready"}}) / '
            f"(max by (queue) (rate(reliq_messages_acked_total{{{QUEUE}}}[$__rate_interval])) - "
            f"max by (queue) (rate(reliq_messages_enqueued_total{{{QUEUE}}}[$__rate_interval])) > 0)"
        },
        unit="s",
    ),
    Lines(
        "Length and limit",
        "Ready and delayed messages, and the max_length above which sends are refused (0 = none).",
        {
            "{{queue}}: length": "sum by (queue) (max by (queue, state) "
            f'(reliq_queue_messages{{{QUEUE},state=~"ready|delayed"}}))',
            "{{queue}}: limit": f"max by (queue) (reliq_queue_max_length{{{QUEUE}}})",
        },
    ),
    Lines(
        "Share of runs that fail",
        "Failures that are tried again and deaths, of all runs that ended.",
        {
            "failed": f"({rate('reliq_messages_retried')} + {rate('reliq_messages_dead_lettered')}) / "
            f"({rate('reliq_messages_retried')} + {rate('reliq_messages_dead_lettered')} + "
            f"{rate('reliq_messages_acked')})"
        },
        unit="percentunit",
    ),
)

QUEUE_PAGE = Page(
    "queue",
    "reliq / Queue",
    "One queue: where its messages are, what happens to them, how long it takes.",
    {"Now": NOW, "Flow": FLOW, "Order, priority, cycle": ORDER, "Latency": LATENCY, "Capacity": CAPACITY},
)
