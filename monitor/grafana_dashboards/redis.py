"""The dashboard Redis: the server, its settings and the guarantees that depend on them."""

from grafana_dashboards.panels import QUEUE, Lines, Number, Page, rate

GUARANTEES = (
    Number(
        "Redis answers",
        "1 when every exporter reaches Redis. Runbook: docs/runbooks/redis-down.md",
        "min(reliq_redis_up)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Never evicts",
        "1 when maxmemory-policy is noeviction. Otherwise a full Redis deletes queues. "
        "Runbook: docs/runbooks/redis-eviction-unsafe.md",
        "min(reliq_redis_eviction_safe)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Append-only file",
        "1 when on: a restart then loses at most the last second. Runbook: docs/runbooks/redis-not-append-only.md",
        "min(reliq_redis_append_only)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Writes to its disk",
        "0 when the last write failed. Runbook: docs/runbooks/redis-not-on-disk.md",
        "min(reliq_redis_writes_to_disk)",
        bad=1,
        low_is_bad=True,
    ),
    Number(
        "Keys evicted, 24 h",
        "Each may have been a queue. Runbook: docs/runbooks/redis-evicted-keys.md",
        "max(increase(reliq_redis_evicted_keys_total[24h]))",
        bad=1,
    ),
    Number(
        "Replicas", "Connected replicas. 0: the data of Redis is lost with its machine.", "min(reliq_redis_replicas)"
    ),
)
BOOKS = (
    Lines(
        "Messages missing, by queue",
        "Messages enqueued, minus those here or counted as gone. Above 0: lost. Below 0: never enqueued, such as a "
        "second copy. Runbook: docs/runbooks/audit-mismatch.md",
        {"{{queue}}": f"max by (queue) (reliq_audit_mismatch_messages{{{QUEUE}}})"},
    ),
    Lines(
        "Duplicates caught",
        "Sends per second that got the id of an earlier message with the same deduplication key.",
        {"{{queue}}": rate("reliq_messages_deduplicated", by="queue")},
        unit="ops",
    ),
    Lines(
        "Refused",
        "Messages per second refused by a full queue. Runbook: docs/runbooks/sends-rejected.md",
        {"{{queue}}": rate("reliq_messages_rejected", by="queue")},
        unit="ops",
    ),
)
SERVER = (
    Lines(
        "Memory",
        "Used, and maxmemory (0 = no limit). At the limit sends are refused and workers still drain. "
        "Runbook: docs/runbooks/redis-memory-high.md",
        {"used": "max(reliq_redis_memory_used_bytes)", "limit": "max(reliq_redis_memory_limit_bytes)"},
        unit="bytes",
    ),
    Lines(
        "Memory a message",
        "Memory used, divided by the number of messages.",
        {"bytes": "max(reliq_redis_memory_used_bytes) / (sum(max by (queue, state) (reliq_queue_messages)) > 0)"},
        unit="bytes",
    ),
    Lines(
        "Commands",
        "Commands per second that Redis processes for all clients.",
        {"commands": "max(rate(reliq_redis_commands_total[$__rate_interval]))"},
        unit="ops",
    ),
    Lines("Connections", "Clients connected to Redis.", {"clients": "max(reliq_redis_clients)"}, width=12),
    Lines(
        "Queues",
        "Number of queues. At most 1,000 have metrics. Runbook: docs/runbooks/queues-not-exported.md",
        {"queues": "max(reliq_queues)"},
        width=12,
    ),
)

REDIS_PAGE = Page(
    "redis",
    "reliq / Redis and guarantees",
    "What the guarantees depend on: the audit, the settings of Redis, its memory.",
    {"Guarantees": GUARANTEES, "Books": BOOKS, "Server": SERVER},
)
