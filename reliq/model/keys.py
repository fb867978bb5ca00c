"""The names of all Redis keys that reliq uses, spelled here and nowhere else.

All keys of a queue carry the hash tag `{queue}`, so a queue lies in one slot of a Redis Cluster and a script may use
all of its keys.
"""

import hashlib
import re
import secrets

from reliq.errors import InvalidName

QUEUES = "reliq:queues"  #: set: the names of all queues
API_KEYS = "reliq:api:keys"  #: hash: id of an API key -> its permissions and a hash of its secret
API_KEY_EXISTED = "reliq:api:key-existed"  #: string: set with the first API key, and never removed
SCHEDULES = "reliq:schedules"  #: hash: name of a schedule -> the queue that has it; a hint
TOPICS = "reliq:topics"  #: hash: "queue pattern" -> 1 for each binding; version, alternate, unroutable
ALLOWANCE = "reliq:api:allowance:"  #: prefix of an API key's id; string: when its allowance is full again
BATCHES = "reliq:{@batches}:open"  #: zset: ids of batches that have not ended, by the ms at which they were opened
CLOCK = "reliq:monitor:clock"  #: hash: at, by: the latest jump of the Redis server's clock that a monitor noticed, ms

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def is_name(queue: object) -> bool:
    """Whether the value is a valid queue name. Uses `fullmatch`, because `$` would accept a trailing newline."""
    return isinstance(queue, str) and _NAME.fullmatch(queue) is not None


def check_name(queue: object) -> str:
    """Return a queue name given by a user; raises InvalidName.

    The queue of a running instance is refused: a monitor removes it with its messages when the instance is gone. A
    partition is refused: messages of a key must be in the home of that key.
    """
    name = check_grammar(queue)
    if instance_of(name) is not None:
        raise InvalidName(
            f"queue name {name!r}: @broadcast. and the id of a process belongs to a broadcast; choose another name"
        )
    if is_partition(name):
        raise InvalidName(f"queue name {name!r}: it is a partition; use the name of its queue, {logical_name(name)!r}")
    return name


def check_grammar(queue: object) -> str:
    """Return the name of any queue, including those of broadcasts; raises InvalidName."""
    if not isinstance(queue, str) or not is_name(queue):
        raise InvalidName(
            f"queue name {queue!r}: use 1 to 128 of A-Z a-z 0-9 . _ @ -, the first of them a letter or a digit"
        )
    return queue


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


class JobKeys:
    """The keys of staged jobs: those of a queue or, for jobs of several queues, those under the tag `@several`."""

    __slots__ = ("_prefix", "epochs", "jobs", "place")

    def __init__(self, place: str) -> None:
        self.place = place  #: the hash tag
        self._prefix = f"reliq:{{{place}}}:"
        self.jobs = self._prefix + "jobs"  #: zset: unfinished staged jobs, by the ms at which to look at them
        self.epochs = self._prefix + "epochs"  #: hash: stream -> the last epoch it committed, and when

    def job(self, job: str) -> str:
        """Return the key of a staged job; hash: its state, its run and, once committed, its manifest."""
        return f"{self._prefix}job:{job}"

    def parts(self, job: str) -> str:
        """Return the key of a job's parts; set: "queue part" of all that the job has staged, approved or not."""
        return f"{self._prefix}parts:{job}"


def dedup_digest(key: str) -> str:
    """Return the digest that stands for a deduplication key in the name of its Redis key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


SEVERAL = JobKeys("@several")  #: for jobs that write to several queues; not a valid queue name


class QueueKeys(JobKeys):
    """The keys of one queue."""

    __slots__ = (
        "active", "answers", "awaited", "bodies", "buckets", "config", "consumers", "counters", "cycle", "dead",
        "delayed", "earlier_results", "flow", "followed", "freed", "high", "history", "index", "logical", "low",
        "messages", "next_round", "outcomes", "places", "prepared", "producers", "questions", "queue", "results",
        "rounds", "runs", "schedule_states", "schedules", "servers", "ticks", "told", "trying", "waiting",
        "workers",
    )  # fmt: skip

    def __init__(self, queue: str) -> None:
        super().__init__(check_grammar(queue))
        self.queue = queue
        self.logical = logical_name(queue)  #: the name that users know
        prefix = self._prefix
        self.messages = prefix + "messages"  #: list: ready, pushed at the head, taken from the tail
        self.high = prefix + "high"  #: list: ready, with high priority
        self.low = prefix + "low"  #: list: ready, with low priority
        self.waiting = prefix + "waiting"  #: zset: messages waiting for their key, by group and turn; score 0
        self.next_round = prefix + "next_round"  #: list: ready, members of the cycle visited in this round
        self.rounds = prefix + "rounds"  #: zset: groups of the cycle by their round; without resting members
        self.active = prefix + "active"  #: hash: group -> the id of the message that holds the key
        self.cycle = prefix + "cycle"  #: hash: group -> the id of the circulating message, and the member
        self.bodies = prefix + "bodies"  #: hash: reference -> body, of the messages whose element has no body
        self.delayed = prefix + "delayed"  #: zset: messages not due yet, by due ms
        self.dead = prefix + "dead"  #: zset: dead letters, by ms of death
        self.index = prefix + "index"  #: hash: id -> score, of the messages in delayed or dead
        self.consumers = prefix + "consumers"  #: set: consumers that may hold messages
        self.servers = prefix + "servers"  #: zset: processes that share the partitions, by ms of their latest word
        self.results = prefix + "results"  #: hash: id -> what the handler has returned
        self.earlier_results = prefix + "earlier_results"  #: hash: those of the time before
        self.awaited = prefix + "awaited"  #: string: exists while someone waits for a result
        self.answers = prefix + "answers"  #: stream: the ids of messages with results, while someone waits
        self.trying = prefix + "trying"  #: hash: consumer -> the redelivered message it is trying (reliq_monitor.marks)
        self.workers = prefix + "workers"  #: hash: consumer -> its process, and what that does: JSON (model.worker)
        self.told = prefix + "told"  #: hash: id of a message that was cancelled while a consumer held it -> ms of that
        self.counters = prefix + "counters"  #: hash
        self.config = prefix + "config"  #: hash: the queue's policy
        self.flow = prefix + "flow"  #: hash: the state of the queue's limits and of its circuit breaker
        self.buckets = prefix + "buckets"  #: zset: groups by the ms at which the bucket of their key is full again
        self.freed = prefix + "freed"  #: list: an entry while another message may be in processing within `concurrency`
        self.producers = prefix + "producers"  #: hash: producer -> its last sequence number, and when
        self.prepared = (
            prefix + "prepared"
        )  #: zset: ids of messages that wait for a decision, by the ms of their next check-back
        self.questions = (
            prefix + "questions"
        )  #: zset: ids of prepared messages that a check-back is to decide, by the ms of the request
        self.schedules = prefix + "schedules"  #: hash: name of a schedule -> its definition, JSON
        self.schedule_states = prefix + "schedule_states"  #: hash: name -> its next tick and its counts, JSON
        self.ticks = prefix + "ticks"  #: zset: names of schedules, by the ms at which a monitor sends their next tick
        self.runs = prefix + "runs"  #: hash: name -> ms of its latest run, and what was sent, JSON
        self.followed = prefix + "followed"  #: hash: id -> where it entered the queue; " batch" -> its counts
        self.history = prefix + "history"  #: stream: the transitions of messages
        #: What scripts call `places`: the keys of ready messages, and those that decide which one is next. This is the
        #: order in their KEYS; tools/generate_scripts.py writes the same names into the scripts.
        self.places = (
            self.messages, self.high, self.low, self.waiting, self.active, self.cycle, self.next_round, self.rounds,
            self.counters, self.config, self.bodies, self.followed, self.history,
        )  # fmt: skip
        #: What scripts call `outcomes`: what handlers have returned, and who waits for it.
        self.outcomes = (self.results, self.earlier_results, self.awaited, self.answers)

    @property
    def everything(self) -> tuple[str, ...]:
        """The keys that every queue may have, without those of its consumers, jobs and deduplication keys."""
        slots = (getattr(self, name) for one in (JobKeys, QueueKeys) for name in one.__slots__)
        return tuple(
            one for one in slots if isinstance(one, str) and one.startswith(self._prefix) and one != self._prefix
        )

    @property
    def pattern(self) -> str:
        """The pattern of all keys of the queue, whose name has no special character of patterns."""
        return f"{self._prefix}*"

    @property
    def lasting(self) -> tuple[str, ...]:
        """How the names of the keys begin that last longer than a message: its windows, marks, reports and decisions,
        and what staged jobs have.
        """
        kinds = ("burst", "dedup", "done", "half", "idempotency", "job", "parts", "report", "staged")
        return tuple(f"{self._prefix}{kind}:" for kind in kinds)

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each key that a reclaim writes to, or that its scripts read, as returned by the command TYPE."""
        lists = (self.messages, self.high, self.low, self.next_round)
        zsets = (self.dead, self.waiting, self.rounds)
        hashes = (self.counters, self.config, self.index, self.active, self.cycle, self.trying, self.bodies)
        return {**dict.fromkeys(lists, "list"), **dict.fromkeys(zsets, "zset"), **dict.fromkeys(hashes, "hash")}

    def processing(self, consumer: str) -> str:
        """Return the key of a consumer's processing list: the messages it holds, newest at the head."""
        return f"{self._prefix}processing:{consumer}"

    def lease(self, consumer: str) -> str:
        """Return the key of a consumer's lease; string: its deadline, ms of the Redis server's clock."""
        return f"{self._prefix}lease:{consumer}"

    def settled(self, lease: str) -> str:
        """Return the key that marks an HTTP lease as ended because all its messages were settled; kept for a minute."""
        return f"{self._prefix}settled:{lease}"

    def idempotency(self, key: str) -> str:
        """Return the key of the HTTP service's answer to the first request with this Idempotency-Key; string."""
        return f"{self._prefix}idempotency:{hashlib.sha256(key.encode()).hexdigest()}"

    def dedup(self, key: str) -> str:
        """Return the Redis key of a deduplication key; string: the message id.

        The deduplication key is hashed: a user's text never becomes part of a Redis key.
        """
        return self.dedup_of(dedup_digest(key))

    def dedup_of(self, digest: str) -> str:
        """Return the same for the digest of a deduplication key."""
        return f"{self._prefix}dedup:{digest}"

    def burst(self, key: str) -> str:
        """Return the Redis key of a burst of sends with a deduplication key, of which the latest is debounced.

        String: the ms at which the first was sent, and the id of the latest; expires when that is due.
        """
        return f"{self._prefix}burst:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"

    def done(self, identity: str) -> str:
        """Return the key that marks an id or header value as handled once; string; expires with the window."""
        return f"{self._prefix}done:{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def prepared_record(self, identity: str) -> str:
        """Return the key of a prepared message; hash: the message and, for a while, the decision about it."""
        return f"{self._prefix}half:{identity}"

    def report(self, identity: str) -> str:
        """Return the key of what a handler has reported about a message; hash; expires a week after the latest."""
        return f"{self._prefix}report:{identity}"

    def staged(self, job: str, part: str) -> str:
        """Return the key of a staged part; list: chunks of messages, invisible until their job commits."""
        return f"{self._prefix}staged:{job}:{part}"


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


_PARTITION = re.compile(r"(.+)@partition\.([0-9]{1,3}[a-z]{0,4})")


def partition_queue(queue: str, name: str) -> str:
    """Return the queue of a partition; raises InvalidName if the name becomes too long."""
    return check_grammar(f"{queue}@partition.{name}")


def is_partition(queue: str) -> bool:
    """Whether this is the queue of a partition that is not the first one."""
    return "@partition." in queue and _PARTITION.fullmatch(queue) is not None


def logical_name(queue: str) -> str:
    """Return the queue that users know: of a partition its queue, of any other queue its own name."""
    match = _PARTITION.fullmatch(queue) if "@partition." in queue else None
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
