"""The keys in Redis: each key of a queue and of the server, its type, what it holds, and when it goes.

An entry is all there is to say about a key. Made from it: the attributes of `QueueKeys` (`reliq.contract.key_names`,
generated), the keys that scripts call `places` and `outcomes`, what the deletion of a queue deletes, the types that a
reclaim checks, docs/reference/keys.md. The keys of the server are spelled in `reliq.model.keys`, and compared.
"""

import re
from dataclasses import dataclass
from typing import Final

PLACES, OUTCOMES, SLOTS, RATES = "places", "outcomes", "slots", "rates"
#: Groups of keys that scripts take whole, with what each is.
GROUPS: Final = {
    PLACES: "the keys of ready messages, and those that decide which one is next",
    OUTCOMES: "what handlers have returned, and who waits for it",
    SLOTS: "who has messages in processing, where `concurrency` is limited, and how the others learn of a free slot",
    RATES: "how much the rates of the queue and of keys let through",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key, or one for each of what `of` names."""

    name: str  #: of a queue's key: what comes after `reliq:{QUEUE}:`; of the server's: all of it
    kind: str  #: as the command TYPE replies
    text: str  #: what it holds, as part of a sentence
    of: tuple[str, ...] = ()  #: what follows the name, behind colons
    attribute: str = ""  #: its name in Python, if that is another one
    group: str = ""  #: the order of the entries of a group is that of the scripts' KEYS
    expires: str = ""  #: when it goes by itself
    searched: bool = False  #: whether a deletion of the queue searches for it, because only its name says what it is of
    several: bool = False  #: whether jobs of several queues have it too, under the tag `@several`
    reclaimed: bool = False  #: whether a reclaim writes to it, or its script reads it: its type is checked before

    @property
    def called(self) -> str:
        """Its name in Python: an attribute of QueueKeys, or a method."""
        return self.attribute or self.name + ("_of" if self.of == ("digest",) else "")

    @property
    def shown(self) -> str:
        """Its name for people: `processing:<consumer>`."""
        return ":".join((self.name, *(f"<{one}>" for one in self.of)))


_WINDOW = "when the window ends"
_CONSUMER, _ID, _DIGEST = ("consumer",), ("id",), ("digest",)

QUEUE_KEYS: Final = (
    Key("messages", "list", "ready, pushed at the head, taken from the tail", group=PLACES, reclaimed=True),
    Key("high", "list", "ready, with high priority", group=PLACES, reclaimed=True),
    Key("low", "list", "ready, with low priority", group=PLACES, reclaimed=True),
    Key(
        "waiting", "zset", "messages waiting for their key, by group and turn; score 0", group=PLACES, reclaimed=True
    ),
    Key("active", "hash", "group -> the id of the message that holds the key", group=PLACES, reclaimed=True),
    Key(
        "cycle", "hash", "group -> the id of the circulating message, and the member", group=PLACES, reclaimed=True
    ),
    Key("next_round", "list", "ready, members of the cycle visited in this round", group=PLACES, reclaimed=True),
    Key(
        "rounds", "zset", "groups of the cycle by their round; without resting members", group=PLACES, reclaimed=True
    ),
    Key("counters", "hash", "how often something happened since the queue exists", group=PLACES, reclaimed=True),
    Key("config", "hash", "the queue's policy", group=PLACES, reclaimed=True),
    Key(
        "bodies", "hash", "reference -> body, of the messages whose element has no body", group=PLACES, reclaimed=True
    ),
    Key(
        "followed", "hash", 'id -> where it entered the queue; " batch" -> its counts; behind a line feed: the records '
        "of messages, what their steps have returned and the signals they had; behind a tab: the heads of their "
        "output; behind a vertical tab: which messages of flows wait for which",
        group=PLACES,
    ),
    Key(
        "history", "stream", "the transitions of messages", group=PLACES,
        expires="a minute after the latest is older than `history`",
    ),
    Key("delayed", "zset", "messages not due yet, by due ms"),
    Key("dead", "zset", "dead letters, by ms of death", reclaimed=True),
    Key(
        "index", "hash", "id -> score, of the messages in delayed; a blank and the id -> score, of those in dead",
        reclaimed=True,
    ),
    Key("consumers", "set", "consumers that may hold messages"),
    Key("processing", "list", "the messages that the consumer holds, newest at the head", of=_CONSUMER),
    Key(
        "lease", "string", "until when the consumer holds them, ms of the Redis server's clock", of=_CONSUMER,
        expires="when it is not renewed",
    ),
    Key(
        "trying", "hash", "consumer -> the redelivered message it is trying (reliq_monitor.marks)", reclaimed=True
    ),
    Key("workers", "hash", "consumer -> its process, and what that does: JSON (model.worker)"),
    Key(
        "settled", "string", "exists after all messages of an HTTP lease were settled", of=("lease",),
        expires="after a minute",
    ),
    Key(
        "idempotency", "string", "the HTTP service's answer to the first request with this Idempotency-Key",
        of=_DIGEST, expires="after a day", searched=True,
    ),
    Key(
        "told", "hash", "id of a message that was cancelled while a consumer held it -> ms of that; "
        "what workers are told: a verb and the process -> ms",
        expires="a day after the latest entry",
    ),
    Key(
        "report", "hash", "what a handler has reported about the message", of=_ID,
        expires="a week after the latest report", searched=True,
    ),
    Key(
        "output", "stream", "the chunks that the handler of the message has emitted", of=_ID,
        expires="a day, or `keep_output`, after the latest chunk", searched=True,
    ),
    Key(
        "outputs", "string", "exists while a message may have output",
        expires="a day, or `keep_output`, after the latest chunk",
    ),
    Key("flows", "string", "exists while a flow has members in the queue, or monitors have to know of their ends"),
    Key(
        "charged", "string", "what a run of a message was charged", of=("run",),
        expires="a day after the latest charge", searched=True,
    ),
    Key(
        "results", "hash", "id -> what the handler has returned", group=OUTCOMES,
        expires="after two times as long as results are kept",
    ),
    Key("earlier_results", "hash", "those of the time before", group=OUTCOMES, expires="as `results`"),
    Key(
        "awaited", "string", "exists while someone waits for a result", group=OUTCOMES,
        expires="when no one waits any more",
    ),
    Key(
        "answers", "stream", "the ids of messages with results, while someone waits", group=OUTCOMES,
        expires="an hour after the latest",
    ),
    Key("received", "zset", "ids of messages in flight, by the ms at which they become visible again"),
    Key("receipts", "hash", "id -> the message in flight, behind its turn in the line of its key"),
    Key("early", "set", "groups in flight with a visible message that comes before those in flight"),
    Key(
        "attempt", "list", "the messages that a receive with this attempt id, or a micro-batch of Spark, has in flight",
        of=_DIGEST, expires="after five minutes; that of a micro-batch with its lease", searched=True,
    ),
    Key("parked", "hash", "id -> the message that waits for a signal, behind until when, since when, and for which"),
    Key(
        "waits", "zset", "when parked messages stop waiting, up to 32 in an entry, by the ms of the first one, below "
        "zero; behind one, two or three line feeds the ids of early signals, of records that a monitor brings from "
        "another home, and takes to one, by the ms at which they are forgotten"
    ),
    Key(
        "call", "string", "the answer to a call that gave a signal or cancelled a message, for when it is repeated",
        of=("token",), expires="after ten minutes",
    ),
    Key("producers", "hash", "producer -> its last sequence number, and when"),
    Key(
        "dedup", "string", "the id of the first message with a deduplication key", of=_DIGEST, expires=_WINDOW,
        searched=True,
    ),
    Key(
        "burst", "string", "of sends whose latest is debounced: the ms of the first one, and the id of the latest",
        of=_DIGEST, expires="when the latest is due", searched=True,
    ),
    Key(
        "done", "string", "exists after a message with this id or header was handled once", of=_DIGEST,
        expires=_WINDOW, searched=True,
    ),
    Key("flow", "hash", "the state of the queue's limits and of its circuit breaker", group=RATES),
    Key(
        "buckets", "zset", "groups by the ms at which their bucket is full; behind `!`: at which a hold ends",
        group=RATES,
    ),
    Key(
        "holders", "hash", "consumer -> how many messages it holds, where `concurrency` is limited; their sum",
        group=SLOTS, reclaimed=True,
    ),
    Key(
        "freed", "list", "an entry when one of the consumers that wait should claim: the limits allow another message",
        group=SLOTS, reclaimed=True,
    ),
    Key("prepared", "zset", "ids of messages that wait for a decision, by the ms of their next check-back"),
    Key(
        "questions", "zset", "ids of prepared messages that a check-back is to decide, by the ms of the request"
    ),
    Key(
        "half", "hash", "the prepared message and, for a while, the decision about it", of=_ID,
        attribute="prepared_record", expires="a while after the decision", searched=True,
    ),
    Key("schedules", "hash", "name of a schedule -> its definition, JSON"),
    Key("schedule_states", "hash", "name -> its next tick and its counts, JSON"),
    Key("ticks", "zset", "names of schedules, by the ms at which a monitor sends their next tick"),
    Key("runs", "hash", "name -> ms of its latest run, and what was sent, JSON"),
    Key("sqs", "hash", "what the SQS endpoint knows of the queue: attributes, tags, times"),
    Key("servers", "zset", "processes that serve the queue together, by ms of their latest word"),
    Key("jobs", "zset", "unfinished staged jobs, by the ms at which to look at them", several=True),
    Key("epochs", "hash", "stream -> the last epoch it committed, when, and how durably", several=True),
    Key(
        "ended", "list", "the latest jobs that were committed and have ended, and what each has written, JSON",
        several=True,
    ),
    Key(
        "write", "string", "the latest write of a Spark session, JSON", of=("session",), attribute="latest_write",
        expires="seven days after it", several=True,
    ),
    Key("versions", "hash", "application -> the last version it has committed, when, and how durably", several=True),
    Key(
        "job", "hash", "of a staged job: its state, its run and, once committed, its manifest", of=("job",),
        expires="a while after it has ended", searched=True, several=True,
    ),
    Key(
        "parts", "set", '"queue part" of all that the job has staged, approved or not', of=("job",), searched=True,
        several=True,
    ),
    Key(
        "staged", "list", "chunks of messages of a part, invisible until their job commits", of=("job", "part"),
        expires="in another slot than its job: after the longest life of a job", searched=True,
    ),
)  # fmt: skip

SERVER_KEYS: Final = (
    Key("reliq:queues", "set", "the names of all queues"),
    Key(
        "reliq:deleted", "hash", "name of a queue that was deleted in the last minutes -> when, ms",
        expires="after an hour",
    ),
    Key("reliq:api:keys", "hash", "id of an API key -> its permissions and a hash of its secret"),
    Key("reliq:api:key-existed", "string", "set with the first API key, and never removed"),
    Key(
        "reliq:api:allowance", "string", "when the allowance of the API key is full again", of=("id",),
        expires="a second after that",
    ),
    Key("reliq:sqs:keys", "hash", "id of an access key of the SQS endpoint -> its permissions and encrypted secret"),
    Key(
        "reliq:sqs:deleted", "string", "exists after the SQS endpoint deleted the queue, with `--strict-timing`",
        of=("queue",), expires="after a minute",
    ),
    Key("reliq:sqs:moves", "hash", "id of a move task of the SQS endpoint -> its state, JSON"),
    Key(
        "reliq:sqs:moving", "string", "the endpoint that runs the move task", of=("task",),
        expires="when it is not renewed",
    ),
    Key("reliq:schedules", "hash", "name of a schedule -> the queue that has it; a hint"),
    Key("reliq:topics", "hash", '"queue pattern" -> 1 for each binding; version, alternate, unroutable'),
    Key(
        "reliq:{reliq:topics}:call", "string", "the answer to a call that changed bindings, for when it is repeated",
        of=("token",), expires="after ten minutes",
    ),
    Key(
        "reliq:{@batches}:open", "zset", "ids of batches that have not ended, by the ms at which they were opened, and "
        "half a ms if they wait for messages only",
    ),
    Key(
        "reliq:{@batches}:batch", "hash", "of a batch that has not ended: its queues, and the messages that are sent "
        "at its end", of=("batch",),
    ),
    Key("reliq:{@flows}:open", "zset", "ids of flows that have not ended, by the ms at which they were opened"),
    Key(
        "reliq:{@flows}:flow", "hash", "of a flow: its state, its members, and what has become of them", of=_ID,
        expires="an hour after its end",
    ),
    Key(
        "reliq:monitor:clock", "hash",
        "at, by: the latest jump of the Redis server's clock that a monitor noticed, ms",
    ),
    Key("reliq:monitor:{<tag>}:until", "zset", "the monitors that share the queues, by the ms at which they are gone"),
    Key("reliq:monitor:{<tag>}:since", "zset", "the same monitors, by the ms at which they came"),
)  # fmt: skip

_OF_QUEUE = re.compile(r"reliq:\{([^{}]+)\}:(.+)", re.DOTALL)
_BY_NAME = {(one.name, bool(one.of)): one for one in QUEUE_KEYS}
_OF_SERVER = [
    (re.compile(re.escape(one.name).replace("<tag>", "[^{}]+") + (":.+" if one.of else ""), re.DOTALL), one)
    for one in SERVER_KEYS
]


def described(key: str) -> Key | None:
    """Return the entry of a key as Redis has it; None for a key that reliq does not write."""
    for pattern, of_server in _OF_SERVER:
        if pattern.fullmatch(key):
            return of_server
    match = _OF_QUEUE.fullmatch(key)
    if match is None:
        return None
    name, colon, _ = match[2].partition(":")
    entry = _BY_NAME.get((name, bool(colon)))
    return entry if entry is not None and (match[1] != "@several" or entry.several) else None
