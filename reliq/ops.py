"""Transitions as values: which script, which keys, which arguments, and how to read the reply. Pure; `store` runs them.

Longer protocols are generators ("steps") that yield what they want done and are sent the reply, so that the sync
client, the asyncio client and the model checker in tests/model run the very same code.
"""

import hashlib
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from reliq.keys import ALLOWANCE, QUEUES, TOPICS, JobKeys, QueueKeys, is_name

T = TypeVar("T")

_LUA = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Packed:
    """Arguments that are already as the protocol has them: a bulk string each."""

    count: int
    data: bytes


Argument = bytes | str | int | float | Packed


class Script:
    """A Lua script: its file, with the shared functions that its `-- uses:` line names in front."""

    def __init__(self, name: str) -> None:
        source = _read(f"{name}.lua")
        uses = re.search(r"^-- uses: (.+)$", source, re.MULTILINE)
        shared = [_read(f"shared/{one}.lua") for one in uses[1].split(", ")] if uses else []
        self.name = name
        self.source = "\n".join([*shared, source])
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


def _read(path: str) -> str:
    return (_LUA / path).read_text(encoding="utf-8")


def _as_is(reply: Any) -> Any:
    return reply


class Op(msgspec.Struct, Generic[T], frozen=True):
    """One command.

    `repeatable`: running it twice is as good as once, so a lost reply may be answered by sending it again.
    `blocks`: seconds the server may take before it answers. `retries`: how often it is tried again at most; None = as
    often as time allows.
    """

    command: tuple[Argument, ...]
    read: Callable[[Any], T] = _as_is
    script: Script | None = None
    repeatable: bool = True
    blocks: float = 0.0
    retries: int | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """WATCH these keys, on a connection that this run of steps keeps to itself until its Transaction.

    Answers what is read in the same trip.
    """

    keys: tuple[str, ...]
    reads: tuple["Op[Any]", ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """MULTI ... EXEC. Answers the list of replies, or None: a watched key was touched and nothing was done.

    With an empty list: UNWATCH.
    """

    ops: tuple[Op[Any], ...]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait, without holding a connection that watches."""

    seconds: float


Request = Op[Any] | Sequence[Op[Any]] | Watch | Transaction | Sleep
Steps = Generator[Request, Any, T]

_SCRIPTS: dict[str, Script] = {}


def _named(name: str) -> Script:
    script = _SCRIPTS.get(name)
    if script is None:
        script = _SCRIPTS[name] = Script(name)
    return script


def _script(name: str, keys: Sequence[str], arguments: Iterable[Argument], read: Callable[[Any], T] = _as_is) -> Op[T]:
    script = _named(name)
    return Op(("EVALSHA", script.sha, len(keys), *keys, *arguments), read, script)


def at_most(op: Op[T], retries: int | None) -> Op[T]:
    """The same, tried again no more often than that."""
    return op if retries is None else msgspec.structs.replace(op, retries=retries)


def milliseconds(seconds: float) -> int:
    """At least 1, where the time is not 0: a short delay or lease must not become none."""
    return max(1, round(seconds * 1000)) if seconds else 0


# --- enqueue ---------------------------------------------------------------------------------------------------------


class Enqueued(msgspec.Struct, frozen=True):
    """The enqueue script's answer. `first_ids` maps the position among the entries with options to the first id;
    at the positions in `conflicts`, that first message had another body.
    """

    status: Literal["ok", "repeated", "full"]
    now: int
    first_ids: dict[int, str]
    length: int = 0
    max_length: int = 0
    unit: str = "messages"  #: of length and max_length; or bytes
    conflicts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to enqueue that is delayed, or has a deduplication key, an order key or a priority."""

    id: str
    element: bytes
    delay: float
    dedup_key: str | None
    window: float
    digest: str = ""  #: of the body, to tell a duplicate from another message with the same key


def enqueue(
    keys: QueueKeys, plain: Sequence[bytes], entries: Sequence[Entry] = (), producer: str = "", sequence: int = 0
) -> Op[Enqueued]:
    """Repeatable only with a producer's sequence: the script then knows a call it has carried out."""
    names = [*keys.places, keys.delayed, keys.index, keys.producers]
    arguments: list[Argument] = [producer, sequence, len(plain), *plain]
    for entry in entries:
        window = 0.0
        if entry.dedup_key is not None:
            names.append(keys.dedup(entry.dedup_key))
            window = entry.window
        arguments += (entry.id, entry.element, milliseconds(entry.delay), milliseconds(window), entry.digest)
    op = _script("enqueue", names, arguments, _read_enqueued)
    return op if producer else Op(op.command, op.read, op.script, repeatable=False)


def _read_enqueued(reply: Any) -> Enqueued:
    if isinstance(reply, int):
        return Enqueued("ok", reply, {})
    status, now, *rest = reply
    if status == b"full":
        return Enqueued("full", now, {}, *map(_readable, rest))
    conflicts = frozenset(-1 - position for position in rest[::2] if position < 0)
    firsts = {
        max(position, -1 - position): first.decode() for position, first in zip(rest[::2], rest[1::2], strict=True)
    }
    return Enqueued("repeated" if status == b"repeated" else "ok", now, firsts, conflicts=conflicts)


@dataclass(frozen=True, slots=True)
class Published:
    """The publish script's answer; `refuser`: the place of the queue that is full."""

    status: Literal["ok", "repeated", "full"]
    now: int
    length: int = 0
    max_length: int = 0
    refuser: int = 0
    unit: str = "messages"


def publish(
    every: Sequence[QueueKeys], identity: str, element: bytes, delay: float, producer: str, sequence: int
) -> Op[Published]:
    """One message into several queues. Equal bytes in each: an LREM looks into one queue's list only."""
    names = [every[0].producers]
    for keys in every:
        names += (*keys.places, keys.delayed, keys.index)
    arguments = (producer, sequence, identity, element, milliseconds(delay))
    return _script("publish", names, arguments, lambda reply: Published(*map(_readable, reply)))


def bind(verb: Literal["bind", "unbind"], bindings: Sequence[str]) -> Op[int]:
    """Answers how many bindings changed."""
    return _script("bind", (TOPICS,), (verb, *bindings))


def alternate(queue: str) -> Op[int]:
    """Where unroutable messages go."""
    return _script("bind", (TOPICS,), ("alternate", queue))


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody who enters a cycle, and the message that goes round for it."""

    member: str
    group: str
    id: str
    element: bytes


@dataclass(frozen=True, slots=True)
class Entered:
    """The cycle_add script's answer: 1 or 0 a member, or, of a full queue, its length, max_length and their unit."""

    status: Literal["ok", "full"]
    now: int
    rest: list[Any]


def cycle_add(keys: QueueKeys, members: Sequence[Member]) -> Op[Entered]:
    arguments = [part for one in members for part in (one.member, one.group, one.id, one.element)]
    names = (*keys.places, keys.delayed)
    return _script(
        "cycle_add",
        names,
        arguments,
        lambda reply: Entered(reply[0].decode(), reply[1], [_readable(one) for one in reply[2:]]),
    )


def cycle_remove(keys: QueueKeys, groups: Sequence[str]) -> Op[list[int]]:
    return _script("cycle_remove", (*keys.places, keys.delayed, keys.index), groups)


def announce(queue: str) -> Op[int]:
    """Enter the queue into the set of all queues: monitors and dashboards look there."""
    return _script("announce", (QUEUES,), (queue,))


# --- consumers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimed:
    """What claim, and settle with a claim, answer. `codes`: one of d, a, l a settled message."""

    status: Literal["ok", "paused", "lost"]
    now: int
    elements: list[bytes]
    codes: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a message goes from processing that is not acked.

    `counter` is the field of the queue's counters that moves with it.
    """

    element: bytes
    destination: Literal["head", "tail", "delayed", "dead", "gone", "done", "round", "rest"]
    counter: str
    id: str = ""
    again: bytes = b""
    delay: float = 0.0
    mark: str = ""  #: with destination done: the key that says so from now on, for `delay` seconds


def register(keys: QueueKeys, consumer: str, lease: float) -> Op[int]:
    return _script("register", (keys.consumers, keys.lease(consumer)), (consumer, milliseconds(lease)))


def claim(keys: QueueKeys, consumer: str, lease: float, limit: int) -> Op[Claimed]:
    """Not repeatable by itself: a claim whose reply was lost has moved messages that only a read-back finds."""
    names = (*keys.places, keys.processing(consumer), keys.lease(consumer), keys.consumers)
    op = _script("claim", names, (milliseconds(lease), limit, consumer), _read_claimed)
    return Op(op.command, op.read, op.script, repeatable=False)


def block(keys: QueueKeys, consumer: str, seconds: float) -> Op[bytes | None]:
    """The claim of an idle consumer: wait for one message."""
    processing = keys.processing(consumer)
    command = ("BLMOVE", keys.messages, processing, "RIGHT", "LEFT", f"{seconds:.3f}")
    return Op(command, repeatable=False, blocks=seconds)


def settle(
    keys: QueueKeys,
    consumer: str,
    lease: float,
    acks: Sequence[bytes],
    moves: Sequence[Move] = (),
    limit: int = 0,
    uncounted: int = 0,
) -> Op[Claimed]:
    """Ack, move the others, and claim up to `limit` next ones. Repeatable as long as it claims nothing."""
    names = (
        *keys.places, keys.processing(consumer), keys.lease(consumer), keys.consumers, keys.delayed, keys.dead,
        keys.index, *(move.mark for move in moves if move.mark),
    )  # fmt: skip
    arguments: list[Argument] = [milliseconds(lease), limit, len(acks), uncounted, *acks]
    for move in moves:
        delay = milliseconds(move.delay)
        arguments += (move.element, move.destination, move.counter, delay, move.id, move.again)
    op = _script("settle", names, arguments, _read_settled)
    return op if limit == 0 else Op(op.command, op.read, op.script, repeatable=False)


def _read_claimed(reply: list[Any]) -> Claimed:
    return Claimed(reply[0].decode(), reply[1], reply[2:])


def _read_settled(reply: list[Any]) -> Claimed:
    return Claimed(reply[0].decode(), reply[1], reply[3:], reply[2].decode())


def heartbeat(keys: QueueKeys, consumer: str, lease: float) -> Op[bool]:
    return _script("heartbeat", (keys.lease(consumer),), (milliseconds(lease),), bool)


def end(keys: QueueKeys, consumer: str) -> Op[int]:
    """End a lease: from now on this consumer claims nothing, and the monitor takes back what it may still hold."""
    return Op(("DEL", keys.lease(consumer)))


def read_back(keys: QueueKeys, consumer: str) -> Op[list[bytes]]:
    """What this consumer holds, newest first."""
    return Op(("LRANGE", keys.processing(consumer), 0, -1))


def forget(keys: QueueKeys, consumer: str, leaving: bool = False) -> Op[bool]:
    names = (keys.consumers, keys.processing(consumer), keys.lease(consumer))
    return _script("forget", names, (consumer, int(leaving)), bool)


# --- monitor ---------------------------------------------------------------------------------------------------------


def first_delayed(keys: QueueKeys) -> Op[int | None]:
    """When the first delayed message is due, in ms; None: none is delayed."""
    return Op(("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"), lambda reply: int(float(reply[1])) if reply else None)


def promote(keys: QueueKeys, limit: int) -> Op[tuple[int, int]]:
    """Answers how many were promoted, and in how many ms the next is due (-1: none)."""
    return _script("promote", (*keys.places, keys.delayed, keys.index), (limit,), tuple)


@dataclass(frozen=True, slots=True)
class Return:
    """One message that the monitor takes back from a consumer whose lease is over."""

    element: bytes
    counter: Literal["reclaimed", "dead:max_deliveries", "dead:decode"]
    id: str
    again: bytes
    group: str = ""  #: of its key, which is free once it is dead


def reclaim_when_full(keys: QueueKeys, consumer: str, deadline: str, returns: Sequence[Return]) -> Op[int]:
    names = (*keys.places, keys.processing(consumer), keys.lease(consumer), keys.dead, keys.index)
    arguments: list[Argument] = [deadline]
    for one in returns:
        arguments += (one.element, one.counter, one.id, one.again)
    return _script("reclaim", names, arguments)


def advance_within(keys: QueueKeys, group: str, identity: str) -> Op[int]:
    """Inside a Transaction, where a script must bring its source along: an unknown one would be found out too late."""
    return Op(("EVAL", _named("advance").source, len(keys.places), *keys.places, group, identity))


# --- operators -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter and the element it becomes."""

    element: bytes
    id: str
    again: bytes
    member: str = ""  #: of the cycle, which it enters again


def redrive(keys: QueueKeys, revivals: Sequence[Revival]) -> Op[list[int]]:
    arguments = [part for one in revivals for part in (one.element, one.id, one.member, one.again)]
    return _script("redrive", (*keys.places, keys.dead, keys.index), arguments)


def discard(
    keys: QueueKeys, letters: Sequence[tuple[bytes, str]], counter: Literal["purged_dead", "trimmed"]
) -> Op[int]:
    """Remove dead letters, given as element and id."""
    arguments = [counter, *(part for letter in letters for part in letter)]
    return _script("discard", (keys.dead, keys.counters, keys.index), arguments)


def cancel(keys: QueueKeys, identity: str) -> Op[bool]:
    return _script("cancel", (*keys.places, keys.delayed, keys.index), (identity,), bool)


def purge(keys: QueueKeys, limit: int) -> Op[int]:
    return _script("purge", (*keys.places, keys.delayed, keys.index), (limit,))


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of a queue is where, at one instant. `following`: the element that is taken next, of each priority."""

    now: int
    ready: int
    waiting: int
    delayed: int
    dead: int
    processing: int
    prepared: int
    paused: bool
    high: int
    low: int
    members: int
    following: list[bytes]
    counters: dict[str, int]


def stats(keys: QueueKeys, consumers: Iterable[str]) -> Op[Counts]:
    """What is where, counting what these consumers hold."""
    names = [*keys.places, keys.delayed, keys.dead, keys.prepared, *map(keys.processing, consumers)]
    return _script("stats", names, (), _read_counts)


def _read_counts(reply: list[Any]) -> Counts:
    now, ready, waiting, delayed, dead, processing, prepared, paused, high, low, members, following, *rest = reply
    counters = {name.decode(): int(count) for name, count in sorted(zip(rest[::2], rest[1::2], strict=True))}
    return Counts(
        now, ready, waiting, delayed, dead, processing, prepared, bool(paused), high, low, members, following, counters
    )


# --- prepared messages -----------------------------------------------------------------------------------------------

Decision = Literal["committed", "rolled_back", "purged"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The prepare script's answer; taken: the id is."""

    status: Literal["ok", "taken", "full"]
    now: int
    length: int = 0
    max_length: int = 0
    unit: str = "messages"


@dataclass(frozen=True, slots=True)
class Decided:
    """The decide script's answer: a Decision, undecided, unknown, or key; the id of the message, or the key's name."""

    decision: str
    id: str


def prepare(
    keys: QueueKeys, entry: Entry, check_after: float, checks: int, producer: str, sequence: int
) -> Op[Accepted]:
    names = (*keys.places, keys.delayed, keys.producers, keys.prepared, keys.half(entry.id))
    arguments: list[Argument] = [producer, sequence, entry.id, milliseconds(check_after), checks]
    arguments += ("element", entry.element, "delay", milliseconds(entry.delay))
    if entry.dedup_key is not None:
        arguments += ("dedup", keys.dedup(entry.dedup_key), "window", milliseconds(entry.window))
        arguments += ("digest", entry.digest)
    return _script("prepare", names, arguments, lambda reply: Accepted(*map(_readable, reply)))


def decide(
    keys: QueueKeys,
    identity: str,
    decision: Decision,
    remembered: float,
    producer: str = "",
    sequence: int = 0,
    dedup: str = "",
) -> Op[Decided]:
    names = [*keys.places, keys.delayed, keys.index, keys.producers, keys.prepared, keys.questions, keys.half(identity)]
    arguments = (producer, sequence, identity, decision, milliseconds(remembered))
    return _script("decide", [*names, dedup] if dedup else names, arguments, lambda reply: Decided(*map(_text, reply)))


def ask(keys: QueueKeys, identity: str, letter: bytes, remembered: float) -> Op[str]:
    """`letter`: the dead letter that it becomes, or nothing: then it is asked about."""
    names = (keys.prepared, keys.questions, keys.half(identity), keys.dead, keys.index, keys.counters)
    return _script("ask", names, (identity, letter, milliseconds(remembered)), _text)


def question(keys: QueueKeys) -> Op[str | None]:
    """Take one: the id it is about. One that is lost on the way is put again by the monitor."""
    command = ("ZPOPMIN", keys.questions)
    return Op(command, lambda reply: reply[0].decode() if reply else None, repeatable=False)


# --- plain reads and writes ------------------------------------------------------------------------------------------


def server_time() -> Op[int]:
    """Ms since the epoch, the Redis server's clock."""
    return Op(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)


def read_hash(key: str) -> Op[dict[str, str]]:
    return Op(("HGETALL", key), _read_hash)


def allow(key: str, rate: float, wanted: int) -> Op[tuple[int, int]]:
    """Answers how many of those wanted an API key may do now, and, where that is none, in how many ms one."""
    return _script("allow", (ALLOWANCE + key,), (rate, wanted), tuple)


def server_setting(name: str) -> Op[dict[str, str]]:
    """What CONFIG GET answers; empty where the server has no such setting."""
    return Op(("CONFIG", "GET", name), _read_hash)


def _read_hash(reply: Any) -> dict[str, str]:
    if isinstance(reply, dict):  # RESP3
        return {name.decode(): value.decode() for name, value in reply.items()}
    return {name.decode(): value.decode() for name, value in zip(reply[::2], reply[1::2], strict=True)}


def members(key: str) -> Op[list[str]]:
    return Op(("SMEMBERS", key), lambda reply: sorted(one.decode() for one in reply))


def queue_names() -> Op[list[str]]:
    """All queues that were ever announced. A foreign entry is passed over: it must not stop a monitor."""
    return Op(("SMEMBERS", QUEUES), _read_names)


def _read_names(reply: Any) -> list[str]:
    return sorted(name for one in reply if is_name(name := one.decode("utf-8", "replace")))


def command(*parts: Argument, repeatable: bool = True) -> Op[Any]:
    """Any other command."""
    return Op(parts, repeatable=repeatable)


def one(op: Op[T]) -> Steps[T]:
    """A single op, as steps."""
    answer: T = yield op
    return answer


# --- staging ---------------------------------------------------------------------------------------------------------


def stage_open(home: JobKeys, job: str, run: str, limit: float) -> Op[str]:
    return _script("stage_open", (home.job(job), home.jobs), (job, run, milliseconds(limit)), _text)


@dataclass(frozen=True, slots=True)
class Staged:
    """A list of chunks: one part of a job, for one queue."""

    keys: QueueKeys
    part: str

    def key(self, job: str) -> str:
        return self.keys.staged(job, self.part)

    def __str__(self) -> str:
        """As the job's record has it."""
        return f"{self.keys.queue} {self.part}"

    @classmethod
    def of(cls, text: str) -> "Staged":
        queue, _, part = text.partition(" ")
        return cls(QueueKeys(queue), part)


def stage(
    home: JobKeys, job: str, run: str, limit: float, staged: Staged, before: int, chunks: Sequence[bytes]
) -> Transaction:
    """May be sent again: the script knows by `before`, the chunks the part has, a call that was carried out.

    The chunks do not go through the script: Lua would hash every byte of them.
    """
    key = staged.key(job)
    names = (home.job(job), home.jobs, home.parts(job), key)
    arguments = (job, run, milliseconds(limit), str(staged), before, len(chunks))
    script = Op(("EVAL", _named("stage").source, len(names), *names, *arguments), _text)
    return Transaction((Op(("RPUSH", key, *chunks)), script))


def stage_abort(home: JobKeys, job: str, run: str, overdue: bool = False) -> Op[bool]:
    return _script("stage_abort", (home.job(job), home.jobs), (job, run, int(overdue)), bool)


def stage_clear(home: JobKeys, job: str, run: str, remembered: float, parts: Sequence[Staged]) -> Op[int]:
    names = (home.job(job), home.jobs, home.parts(job), *(staged.key(job) for staged in parts))
    return _script("stage_clear", names, (job, run, milliseconds(remembered), *map(str, parts)))


def commit(
    home: JobKeys,
    job: str,
    run: str,
    manifest: bytes,
    messages: int,
    remembered: float,
    stream: str = "",
    epoch: int = 0,
) -> Op[str]:
    names = (home.job(job), home.jobs, home.epochs)
    return _script("commit", names, (job, run, manifest, milliseconds(remembered), stream, epoch, messages), _text)


def first_chunk(job: str, staged: Staged) -> Watch:
    """The first chunk of a part, for `roll`. What `roll` would find to be of a wrong type is refused here."""
    key, keys = staged.key(job), staged.keys
    return Watch((key,), (Op(("LINDEX", key, 0)), Op(("LLEN", keys.messages)), Op(("HLEN", keys.counters))))


def roll(job: str, staged: Staged, elements: Packed) -> Transaction:
    """Move the first chunk of a committed part, which has these elements, into the queue, if nobody else has."""
    keys = staged.keys
    return Transaction(
        (
            Op(("LTRIM", staged.key(job), 1, -1)),
            Op(("LPUSH", keys.messages, elements)),
            Op(("HINCRBY", keys.counters, "enqueued", elements.count)),
        )
    )


def commit_roll(job: str, staged: Staged) -> Op[tuple[int, int]]:
    """The same by a script, for delayed messages and when memory is full.

    Answers how many messages moved, and how many chunks are left.
    """
    keys = staged.keys
    names = (staged.key(job), keys.messages, keys.delayed, keys.counters, keys.index)
    return _script("commit_roll", names, (), tuple)


def _text(reply: bytes) -> str:
    return reply.decode()


def _readable(reply: Any) -> Any:
    return reply.decode() if isinstance(reply, bytes) else reply
