"""Every key reliq writes, spelled here and nowhere else.

All keys of a queue carry the hash tag `{queue}`, so a queue lies in one slot of a Redis Cluster and a script may touch
all of it at once.
"""

import hashlib
import re
import secrets

from reliq.errors import InvalidName

QUEUES = "reliq:queues"  #: set of every queue's name
API_KEYS = "reliq:api:keys"  #: hash: id of an API key -> what it allows, and a hash of its secret
TOPICS = "reliq:topics"  #: hash: "queue pattern" -> 1 for each binding; version, alternate, unroutable
ALLOWANCE = "reliq:api:allowance:"  #: and the id of an API key: when its allowance will be full again
CLOCK = "reliq:monitor:clock"  #: hash: at, by: the latest jump of the Redis server's clock that a monitor saw, in ms
LEADER = "reliq:monitor:leader"  #: the monitor whose turn it is; only saves work, any number of them is correct

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def is_name(queue: object) -> bool:
    """Whether it may name a queue. `fullmatch`, because `$` would let a trailing newline pass."""
    return isinstance(queue, str) and _NAME.fullmatch(queue) is not None


def check_name(queue: object) -> str:
    """Return the name of a queue that a user gives; raises InvalidName.

    The queue of a running instance is refused: a monitor removes it with all that it holds when the instance is gone.
    """
    name = check_grammar(queue)
    if instance_of(name) is not None:
        raise InvalidName(
            f"queue name {name!r}: @broadcast. and the id of a process belongs to a broadcast; choose another name"
        )
    return name


def check_grammar(queue: object) -> str:
    """Return the name of any queue, those of broadcasts too; raises InvalidName."""
    if not isinstance(queue, str) or not is_name(queue):
        raise InvalidName(
            f"queue name {queue!r}: use 1 to 128 of A-Z a-z 0-9 . _ @ -, the first of them a letter or a digit"
        )
    return queue


class JobKeys:
    """Where the records of staged jobs lie: with a queue, or for jobs of several queues in a place of their own."""

    __slots__ = ("_prefix", "epochs", "jobs")

    def __init__(self, place: str) -> None:
        self._prefix = f"reliq:{{{place}}}:"
        self.jobs = self._prefix + "jobs"  #: zset: staged jobs that are not over, by the ms at which somebody must look
        self.epochs = self._prefix + "epochs"  #: hash: stream -> the last epoch it committed and when

    def job(self, job: str) -> str:
        """Hash: a staged job's state, run, and once it is committed its manifest."""
        return f"{self._prefix}job:{job}"

    def parts(self, job: str) -> str:
        """Set: "queue part" of all that a job has staged, whether it will be approved or not."""
        return f"{self._prefix}parts:{job}"


SEVERAL = JobKeys("@several")  #: of jobs that write to several queues; no queue has such a name


class QueueKeys(JobKeys):
    """The keys of one queue."""

    __slots__ = (
        "active", "config", "consumers", "counters", "cycle", "dead", "delayed", "high", "index",
        "low", "messages", "next_round", "places", "prepared", "producers", "questions", "queue", "rounds",
        "trying", "waiting",
    )  # fmt: skip

    def __init__(self, queue: str) -> None:
        super().__init__(check_grammar(queue))
        self.queue = queue
        prefix = self._prefix
        self.messages = prefix + "messages"  #: list: ready, pushed at the head, taken from the tail
        self.high = prefix + "high"  #: list: ready, with high priority
        self.low = prefix + "low"  #: list: ready, with low priority
        self.waiting = prefix + "waiting"  #: zset: what waits until its key is free, by group and turn; score 0
        self.next_round = prefix + "next_round"  #: list: ready, members of the cycle that were visited in this round
        self.rounds = prefix + "rounds"  #: zset: groups of the cycle by the round they are in; not of those who rest
        self.active = prefix + "active"  #: hash: group -> the id of the message that holds this key
        self.cycle = prefix + "cycle"  #: hash: group -> the id of the message that goes round for it, and the member
        self.delayed = prefix + "delayed"  #: zset: not due yet, by due ms
        self.dead = prefix + "dead"  #: zset: dead letters, by ms of death
        self.index = prefix + "index"  #: hash: id -> score, of what lies in delayed or dead
        self.consumers = prefix + "consumers"  #: set: who may hold messages
        self.trying = prefix + "trying"  #: hash: consumer -> the redelivered message it tries (reliq_monitor.marks)
        self.counters = prefix + "counters"  #: hash
        self.config = prefix + "config"  #: hash: the queue's policy
        self.producers = prefix + "producers"  #: hash: producer -> its last sequence and when
        self.prepared = (
            prefix + "prepared"
        )  #: zset: ids of messages that wait for a decision, by when to ask about them
        self.questions = (
            prefix + "questions"
        )  #: zset: those of them that a check-back shall decide, by when it was asked
        #: What scripts call `places`: where ready messages are, and what decides which of them.
        self.places = (
            self.messages, self.high, self.low, self.waiting, self.active, self.cycle, self.next_round, self.rounds,
            self.counters, self.config,
        )  # fmt: skip

    @property
    def everything(self) -> tuple[str, ...]:
        """The keys that every queue may have; not those of its consumers, jobs and deduplication keys."""
        return (
            *self.places, self.delayed, self.dead, self.index, self.consumers, self.trying, self.producers, self.jobs,
            self.epochs,
        )  # fmt: skip

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each key that a reclaim writes to, as the command TYPE names it."""
        lists = (self.messages, self.high, self.low, self.next_round)
        zsets = (self.dead, self.waiting, self.rounds)
        hashes = (self.counters, self.config, self.index, self.active, self.cycle, self.trying)
        return {**dict.fromkeys(lists, "list"), **dict.fromkeys(zsets, "zset"), **dict.fromkeys(hashes, "hash")}

    def processing(self, consumer: str) -> str:
        """List: what one consumer holds; newest at the head, oldest at the tail."""
        return f"{self._prefix}processing:{consumer}"

    def lease(self, consumer: str) -> str:
        """String: the consumer's deadline, ms of the Redis server's clock."""
        return f"{self._prefix}lease:{consumer}"

    def settled(self, lease: str) -> str:
        """String: this lease over HTTP ended because all its messages were settled; kept for a minute."""
        return f"{self._prefix}settled:{lease}"

    def idempotency(self, key: str) -> str:
        """String: what the HTTP service answered to the first request with this Idempotency-Key."""
        return f"{self._prefix}idempotency:{hashlib.sha256(key.encode()).hexdigest()}"

    def dedup(self, key: str) -> str:
        """String: the id a deduplication key stands for. Hashed: a user's text never becomes part of a key."""
        return f"{self._prefix}dedup:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def done(self, identity: str) -> str:
        """String: a handler that runs once is done with this id or key; its time to live is the window."""
        return f"{self._prefix}done:{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def prepared_record(self, identity: str) -> str:
        """Hash: a prepared message, and for a while what was decided about it."""
        return f"{self._prefix}half:{identity}"

    def staged(self, job: str, part: str) -> str:
        """List: chunks of messages, written but invisible until their job commits."""
        return f"{self._prefix}staged:{job}:{part}"


# A consumer's id is random per start, never pid or host name: a stranger must not inherit a dead consumer's list.
_CONNECTED, _UNCONNECTED = "c", "h"


def new_owner(connected: bool = True) -> str:
    """A fresh id for a process that will hold messages.

    `connected`: it names its connections after itself, and is taken for dead when they are gone. Otherwise (a lease
    over HTTP) only the lease decides.
    """
    return (_CONNECTED if connected else _UNCONNECTED) + secrets.token_hex(10)


def next_life(consumer: str) -> str:
    """The id under which a consumer starts afresh after it lost its lease; its owner stays the same."""
    owner, _, life = consumer.partition(".")
    return f"{owner}.{int(life or 0) + 1}"


def unconnected(consumer: str) -> str:
    """The id of a consumer that could not name its connections: only its lease decides whether it lives."""
    return _UNCONNECTED + consumer[1:] if is_connected(consumer) else consumer


def connection_name(consumer: str) -> str:
    """What a consumer's connections are called in CLIENT LIST."""
    return "reliq:" + owner_of(consumer)


_INSTANCE = re.compile(r".+@broadcast\.([a-z][0-9a-f]{20})")


def instance_queue(name: str, owner: str) -> str:
    """The queue in which one running instance gets what is broadcast; its name says whose it is."""
    return check_grammar(f"{name}@broadcast.{owner}")


def instance_of(queue: str) -> str | None:
    """The owner of an instance's queue; None for all other queues."""
    match = _INSTANCE.fullmatch(queue)
    return match[1] if match else None


def owner_of(consumer: str) -> str:
    """The id of the process that holds a consumer's messages."""
    return consumer.partition(".")[0]


def process_of(consumer: str) -> str:
    """What all consumers of a process have in common, also those whose connections could not be named."""
    return owner_of(consumer)[1:]


def belongs_to(consumer: str, owner: str) -> bool:
    """Whether a consumer is of this process, also where its connections could not be named."""
    return process_of(consumer) == owner[1:]


def is_connected(consumer: str) -> bool:
    """Whether the consumer promised to keep a connection named after it."""
    return consumer.startswith(_CONNECTED)
