"""The names of all Redis keys that reliq uses. Those of a queue are made from the table reliq.contract.keys.

All keys of a queue carry the hash tag `{queue}`, so a queue lies in one slot of a Redis Cluster and a script may use
all of its keys.
"""

import hashlib
import re
import secrets

from reliq.contract import key_names
from reliq.contract.keys import QUEUE_KEYS
from reliq.errors import InvalidName

QUEUES = "reliq:queues"  #: set: the names of all queues
API_KEYS = "reliq:api:keys"  #: hash: id of an API key -> its permissions and a hash of its secret
DELETED = "reliq:deleted"  #: hash: names of queues that were deleted lately, each with the ms
API_KEY_EXISTED = "reliq:api:key-existed"  #: string: set with the first API key, and never removed
SQS_KEYS = "reliq:sqs:keys"  #: hash: id of an access key of the SQS endpoint -> its permissions and encrypted secret
SQS_DELETED = "reliq:sqs:deleted:"  #: prefix of a queue; string: exists after the endpoint has deleted it
SQS_MOVES = "reliq:sqs:moves"  #: hash: id of a move task of the SQS endpoint -> its state, JSON
SQS_MOVING = "reliq:sqs:moving:"  #: prefix of a move task; string: the endpoint that runs it
SCHEDULES = "reliq:schedules"  #: hash: name of a schedule -> the queue that has it; a hint
TOPICS = "reliq:topics"  #: hash: "queue pattern" -> 1 for each binding; version, alternate, unroutable
TOPICS_CALL = "reliq:{reliq:topics}:call:"  #: prefix of a call, in the slot of TOPICS; string: the answer to the call
ALLOWANCE = "reliq:api:allowance:"  #: prefix of an API key's id; string: when its allowance is full again
BATCHES = "reliq:{@batches}:open"  #: zset: ids of batches that have not ended
FLOWS = "reliq:{@flows}:open"  #: zset: ids of flows that have not ended, by the ms at which they were opened
CLOCK = "reliq:monitor:clock"  #: hash: at, by: the latest jump of the Redis server's clock that a monitor noticed, ms

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_JOB = re.compile(r"[A-Za-z0-9._@-]{1,128}")


def is_name(queue: object) -> bool:
    """Whether the value is a valid queue name. Uses `fullmatch`, because `$` would accept a trailing newline."""
    return isinstance(queue, str) and _NAME.fullmatch(queue) is not None


def check_name(queue: object) -> str:
    """Return a queue name given by a user; raises InvalidName.

    The queue of a running instance is refused: a monitor removes it with its messages when the instance is gone. A
    partition is refused: messages of a key must be in the home of that key. So is what scripts take for one.
    """
    name = check_grammar(queue)
    if instance_of(name) is not None:
        raise InvalidName(
            f"queue name {name!r}: @broadcast. and the id of a process belongs to a broadcast; choose another name"
        )
    if is_partition(name):
        raise InvalidName(f"queue name {name!r}: it is a partition; use the name of its queue, {logical_name(name)!r}")
    if PARTITION in name:
        raise InvalidName(f"queue name {name!r}: {PARTITION} belongs to the partitions of queues; choose another name")
    return name


def check_grammar(queue: object) -> str:
    """Return the name of any queue, including those of broadcasts; raises InvalidName."""
    if not isinstance(queue, str) or not is_name(queue):
        raise InvalidName(
            f"queue name {queue!r}: use 1 to 128 of A-Z a-z 0-9 . _ @ -, the first of them a letter or a digit"
        )
    return queue


def queue_of(key: str) -> str:
    """Return the queue, or what else has its keys in one slot, of one of its keys."""
    return key.partition("{")[2].partition("}")[0]


def run_of(tag: str) -> str:
    """Return how a key names a run, by the tag of its message."""
    return tag.replace(" ", ":")


def monitors_until(tag: str) -> str:
    """Return the key of the monitors that share the queues of one server; zset: by the ms at which they count as gone.

    `tag`: the hash tag; in a cluster each master has monitors of its own, under a tag in one of its slots.
    """
    return f"reliq:monitor:{{{tag}}}:until"


def monitors_since(tag: str) -> str:
    """Return the key of the same monitors; zset: by the ms at which they came."""
    return f"reliq:monitor:{{{tag}}}:since"


def batch_record(batch: str) -> str:
    """Return the key of a batch that has not ended; hash: its queues, and the messages that are sent at its end."""
    return f"reliq:{{@batches}}:batch:{batch}"


def flow_record(flow: str) -> str:
    """Return the key of a flow; hash: its state and its members, and what has become of them."""
    return f"reliq:{{@flows}}:flow:{flow}"


JobKeys = key_names.JobKeys


def check_job(name: str) -> str:
    """Return the job name if it is valid; raises InvalidName."""
    if _JOB.fullmatch(name) is None:
        raise InvalidName(f"job name {name!r}: use 1 to 128 of A-Z a-z 0-9 . _ @ -")
    return name


class OwnKey(str):
    """A key that only calls about one message have: how it is encoded is not remembered."""

    __slots__ = ()


def dedup_digest(key: str) -> str:
    """Return the digest that stands for a deduplication key in the name of its Redis key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def digest_in(name: str) -> str:
    """Return the digest at the end of the name of a deduplication key in Redis."""
    return name[-64:]


SEVERAL = JobKeys("@several")  #: for jobs that write to several queues; not a valid queue name


class QueueKeys(key_names.NamedKeys):
    """The keys of one queue."""

    __slots__ = ("logical", "queue")

    def __init__(self, queue: str) -> None:
        super().__init__(check_grammar(queue))
        self.queue = queue
        self.logical = logical_name(queue)  #: the name that users know

    @property
    def everything(self) -> tuple[str, ...]:
        """The keys that every queue may have, without those of its consumers, jobs and deduplication keys."""
        return tuple(self._prefix + one.name for one in QUEUE_KEYS if not one.of)

    @property
    def pattern(self) -> str:
        """The pattern of all keys of the queue, whose name has no special character of patterns."""
        return f"{self._prefix}*"

    @property
    def lasting(self) -> tuple[str, ...]:
        """How the names of the keys begin that last longer than a message: its windows, marks, reports and decisions,
        and what staged jobs have.
        """
        return tuple(f"{self._prefix}{one.name}:" for one in QUEUE_KEYS if one.searched)

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each key that a reclaim writes to, or that its scripts read, as returned by the command TYPE."""
        return {self._prefix + one.name: one.kind for one in QUEUE_KEYS if one.reclaimed}

    def idempotency(self, key: str) -> str:
        """Return the key of the HTTP service's answer to the first request with this Idempotency-Key."""
        return self.idempotency_of(hashlib.sha256(key.encode()).hexdigest())

    def dedup(self, key: str) -> str:
        """Return the Redis key of a deduplication key.

        The deduplication key is hashed: a user's text never becomes part of a Redis key.
        """
        return OwnKey(self.dedup_of(dedup_digest(key)))

    def burst(self, key: str) -> str:
        """Return the Redis key of a burst of sends with a deduplication key, of which the latest is debounced."""
        return self.burst_of(dedup_digest(key))

    def done(self, identity: str) -> str:
        """Return the key that marks an id or header value as handled once."""
        return self.done_of(dedup_digest(identity)[:32])

    def new_call(self) -> str:
        """Return a key for the answer to one call, by which its script recognizes a repeated one."""
        return self.call(_new_token())


def new_topics_call() -> str:
    """Return such a key for a call that changes bindings."""
    return TOPICS_CALL + _new_token()


def _new_token() -> str:
    return secrets.token_hex(8)


# A consumer's id is random for each start, never a pid or host name: no other process may inherit a dead consumer's
# list.
_CONNECTED, _UNCONNECTED = "c", "h"


def new_owner(connected: bool = True) -> str:
    """Return a new id for a process that will hold messages.

    `connected`: the process names its connections after this id and is considered dead when they are gone. Otherwise (a
    lease over HTTP) only the lease decides.
    """
    return (_CONNECTED if connected else _UNCONNECTED) + secrets.token_hex(10)


def next_life(consumer: str) -> str:
    """Return the id under which a consumer starts again after it lost its lease; its owner stays the same."""
    owner, _, life = consumer.partition(".")
    return f"{owner}.{int(life or 0) + 1}"


def unconnected(consumer: str) -> str:
    """Return the id for a consumer that could not name its connections: only its lease shows whether it is alive."""
    return _UNCONNECTED + consumer[1:] if is_connected(consumer) else consumer


def connection_name(consumer: str) -> str:
    """Return the name of a consumer's connections in CLIENT LIST."""
    return "reliq:" + owner_of(consumer)


_INSTANCE = re.compile(r".+@broadcast\.([a-z][0-9a-f]{20})")


def instance_queue(name: str, owner: str) -> str:
    """Return the name of the queue in which one running instance receives a broadcast; it contains the owner."""
    return check_grammar(f"{name}@broadcast.{owner}")


def instance_of(queue: str) -> str | None:
    """Return the owner of an instance's queue; None for all other queues."""
    match = _INSTANCE.fullmatch(queue)
    return match[1] if match else None


PARTITION = "@partition."
FURTHER_HOME = r"@partition\.[0-9]{1,3}[a-z]{0,4}"  #: how the name of a home ends that is not the first one
_PARTITION = re.compile(f"(.+){FURTHER_HOME}")


def partition_queue(queue: str, name: str) -> str:
    """Return the queue of a partition; raises InvalidName if the name becomes too long."""
    return check_grammar(f"{queue}{PARTITION}{name}")


def is_partition(queue: str) -> bool:
    """Whether this is the queue of a partition that is not the first one."""
    return PARTITION in queue and _PARTITION.fullmatch(queue) is not None


def logical_name(queue: str) -> str:
    """Return the queue that users know: of a partition its queue, of any other queue its own name."""
    match = _PARTITION.fullmatch(queue) if PARTITION in queue else None
    return match[1] if match else queue


def owner_of(consumer: str) -> str:
    """Return the id of the process that holds a consumer's messages."""
    return consumer.partition(".")[0]


def process_of(consumer: str) -> str:
    """Return the part of the id that all consumers of a process share, with or without named connections."""
    return owner_of(consumer)[1:]


def belongs_to(consumer: str, owner: str) -> bool:
    """Whether a consumer belongs to this process, with or without named connections."""
    return process_of(consumer) == owner[1:]


def is_connected(consumer: str) -> bool:
    """Whether the consumer has promised to keep a connection named after it."""
    return consumer.startswith(_CONNECTED)
