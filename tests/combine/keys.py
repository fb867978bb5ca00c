"""Which keys may stay, and for how long: at the end of a story, when all messages are gone."""

from collections.abc import Iterator

from reliq.contract.keys import QUEUE_KEYS
from reliq.model.keys import TOPICS, logical_name
from tests.combine.seen import Seen

#: Keys of a queue that stay without a time to live: a bounded number of small ones for each queue.
STAY = {
    "counters", "config", "producers", "flow", "freed", "holders", "schedules", "servers", "sqs", "ended", "versions",
}  # fmt: skip
#: Those that go with the messages, consumers and jobs they belong to.
GO = {
    "messages", "high", "low", "next_round", "waiting", "rounds", "active", "cycle", "bodies", "delayed", "dead",
    "index", "consumers", "trying", "prepared", "questions", "schedule_states", "ticks", "runs", "followed", "buckets",
    "awaited", "jobs", "epochs", "workers", "received", "receipts", "early", "parked", "waits", "flows",
}  # fmt: skip
_GO_BEFORE = {"lease", "write", "staged"}  #: they expire, and a story deletes them sooner
#: Beginnings of those that expire.
EXPIRE = tuple(
    one.name + (":" if one.of else "") for one in QUEUE_KEYS if one.expires and one.name not in GO | _GO_BEFORE
)
#: Keys of no queue.
GLOBAL = ("reliq:queues", "reliq:topics", "reliq:schedules", "reliq:monitor:", "reliq:api:")


def left_behind(seen: Seen, batches: set[str], flows: set[str], limited_keys: bool) -> Iterator[str]:
    """Yield the keys that no rule explains. `limited_keys`: the buckets of keys stay until the next claim.

    `batches`, `flows`: the ids of those that have not ended.
    """
    for key, ttl in seen.keys.items():
        tag, _, short = key.removeprefix("reliq:{").partition("}:")
        if key.startswith(GLOBAL):
            continue
        if tag == "@flows":
            if ttl < 0 and not any(one in key or short == "open" for one in flows):
                yield f"{key} is left behind, and its flow has ended"
        elif tag == "@batches":
            if not any(one in key for one in batches):
                yield f"{key} is left behind, and its batch has ended"
        elif tag == TOPICS or short.startswith(EXPIRE):
            if ttl < 0:
                yield f"{key} is left behind, and never expires"
        elif short == "followed" and all(map(_tells_of_an_end, seen.queues[logical_name(tag)].followed)):
            continue
        elif short not in STAY and not (short == "buckets" and limited_keys):
            yield f"{key} is left behind"


def _tells_of_an_end(field: str) -> bool:
    """Whether a field of `followed` is the note that a message with signals has ended, of which 10,000 are kept."""
    return field.startswith("\n") and "\n" not in field.lstrip("\n")
