"""The settings of a queue: its policy, which is stored in Redis.

An entry is all there is to say about a setting. Made from it: the keywords of `configure` and the fields of `Config`
(`reliq.contract.keywords`, generated), `reliq queue config`, HTTP schemas, the dashboard's form, the reference.
"""

from dataclasses import dataclass
from typing import Any, Final

from reliq.contract.kinds import Bytes, Durability, Duration, Flag, Kind, Rate, Text, Weights, Whole
from reliq.contract.values import MAX_DELIVERIES, MIN_QUOTA_BYTES

MOST_PARTITIONS: Final = 256
_MANY = 10**12


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a queue."""

    name: str
    kind: Kind
    text: str  #: what it means, as part of a sentence
    label: str  #: before the dashboard's field
    unset: str  #: what holds while it is not set, in words
    default: Any = None
    shared: bool = False  #: whether it is of the whole queue, so that each partition has a share of it
    limits_claims: bool = False  #: whether claims must ask for it
    example: str = ""
    group: str = ""  #: of settings, in forms
    see: str = ""  #: a link from docs/reference to the page that says more


SETTINGS: Final = (
    Setting(
        "max_length", Whole(1, _MANY), "ready and delayed messages, above which sends raise QueueFull",
        "Limit of ready and delayed messages", "no limit", shared=True, group="Size",
    ),
    Setting(
        "max_bytes", Bytes(MIN_QUOTA_BYTES, 10**15),
        "memory in Redis of these messages, in bytes, above which sends raise QueueFull",
        "Limit of their memory in Redis, in bytes", "no limit", shared=True, example="500MiB", group="Size",
    ),
    Setting(
        "max_deliveries", Whole(1, 10_000), "consumers that may die with a message before it becomes a dead letter",
        "Worker deaths before a message is dead", f"{MAX_DELIVERIES}", default=MAX_DELIVERIES, group="Dead letters",
    ),
    Setting(
        "dead_max_age", Duration(shortest=1.0), "how long dead letters are kept", "Keep dead letters for",
        "until purged", example="30d", group="Dead letters",
    ),
    Setting(
        "dead_max_count", Whole(1, _MANY), "how many of the latest dead letters are kept",
        "Keep at most this many dead letters", "all of them", shared=True, group="Dead letters",
    ),
    Setting(
        "dead_to", Text(longest=128), "the queue that gets its dead letters, except those that expired, do not "
        "decode, or were never committed", "Send dead letters to the queue", "none", example="orders-dead",
        see="[dead letters](../how-to/retries.md#dead-letters)", group="Dead letters",
    ),
    Setting(
        "durability", Durability(), "where a message must be stored before its send returns, by default: "
        '"memory", "fsync" or "replicas=1"; a change takes effect within a minute',
        "Durability of sends", "memory", default="memory", example="fsync",
        see="[durability](../concepts/guarantees.md#durability)", group="Durability",
    ),
    Setting(
        "rate", Rate(), "how many messages all consumers together may start", "Rate", "no limit",
        shared=True, limits_claims=True, example="100/s", see="[limits](../how-to/flow.md)", group="Limits",
    ),
    Setting(
        "burst", Whole(1, 1_000_000), "with `rate`: how many messages may start at once after a pause", "Burst",
        "a tenth of a second of the rate", shared=True, group="Limits",
    ),
    Setting(
        "concurrency", Whole(1, 1_000_000), "how many messages may be in processing at once, over all consumers",
        "Concurrency", "no limit", shared=True, limits_claims=True, group="Limits",
    ),
    Setting(
        "key_rate", Rate(), "how many messages of one limit key may start", "Rate of each limit key",
        "no limit", limits_claims=True, example="5/s", group="Limits of each key",
    ),
    Setting(
        "key_concurrency", Whole(1, 1000), "how many messages of one limit key may be ready or in processing at once",
        "Concurrency of each limit key", "no limit", limits_claims=True, group="Limits of each key",
    ),
    Setting(
        "fair", Flag(), "whether limit keys take turns",
        "Limit keys take turns", "false", default=False, limits_claims=True, group="Limits of each key",
    ),
    Setting(
        "weights", Weights(), "with `fair`: how many messages of a limit key run in its turn",
        "Weights of limit keys", "1 for each", default={}, example="gold:4,silver:2", group="Limits of each key",
    ),
    Setting(
        "track", Flag(), "whether to index all messages, so that `find` is quick",
        "Index all messages", "false", default=False, see="[find and cancel](../how-to/life.md)", group="Records",
    ),
    Setting(
        "history", Duration(shortest=1.0), "how long to keep the transitions of messages",
        "Keep the history of messages for", "none", example="1h", group="Records",
    ),
    Setting(
        "keep_output", Duration(shortest=1.0), "how long the output of a message is kept after its latest chunk",
        "Keep the output of messages for", "a day", default=86_400.0, example="1h",
        see="[a stream of output](../how-to/durable.md#a-stream-of-output)", group="Records",
    ),
    Setting(
        "partitions", Whole(1, MOST_PARTITIONS), "how many partitions the queue has, to spread it over the nodes of a "
        "Redis Cluster", "Partitions", "1", default=1,
        see="[partitions](../how-to/partitions.md)", group="Partitions",
    ),
)  # fmt: skip

#: What the policy tells beside its settings: it is changed by calls of its own.
PAUSED: Final = Setting(
    "paused", Flag(), "whether workers start no message: `pause` and `resume` change it", "Paused", "false",
    default=False,
)  # fmt: skip

BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
