"""Ops for new messages: push, enqueue, and the bodies that are stored before them."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from reliq.model.keys import QUEUES, TOPICS, QueueKeys
from reliq.ops import signatures
from reliq.ops.request import Argument, Op, Record, T, Transaction, milliseconds, readable, scripted
from reliq.ops.schema import Topics

NO_BATCHES: Mapping[str, int] = MappingProxyType({})
NO_DUPLICATES: dict[int, str] = {}


class Enqueued(msgspec.Struct, frozen=True):
    """The reply of the enqueue script. `first_ids` maps the position among the entries with options to the first id;
    at the positions in `conflicts`, that first message had another body. `moved`: the positions of entries that belong
    to another home; -1: the plain messages. `held`: those of them with an ordering key of which that home
    still has messages.
    """

    status: Literal["ok", "repeated", "full", "moved"]
    now: int
    first_ids: dict[int, str]
    length: int = 0
    max_length: int = 0
    unit: str = "messages"  #: unit of length and max_length: messages or bytes
    conflicts: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    held: frozenset[int] = frozenset()


class Entry(msgspec.Struct, frozen=True):
    """A message to enqueue that is delayed, or has a deduplication key, an ordering key or a priority.

    `replace`: it replaces the one with its deduplication key that waits; `delay` is then its debounce.
    """

    id: str
    element: bytes
    delay: float
    dedup_key: str | None
    window: float
    digest: str = ""  #: digest of the body; tells a duplicate from another message with the same key
    replace: bool = False
    held: bool = False  #: it waits for its ordering key, of which the former home still has messages
    at_most: float | None = None  #: seconds after the first of a burst at which the newest is due


class StoredBody(msgspec.Struct, frozen=True):
    """A body that is stored in the hash `bodies`, under its reference."""

    reference: bytes
    body: bytes


def arrive(queues: Sequence[QueueKeys], references: Sequence[bytes], producer: str, sequence: int) -> Op[int]:
    """Begin a transaction that stores bodies under these references in each of the queues."""
    return scripted(
        signatures.arrive(
            queues[0],
            bodies=[keys.bodies for keys in queues],
            producer=producer,
            sequence=sequence,
            references=references,
        )
    )


def with_bodies(
    queues: Sequence[QueueKeys], bodies: Sequence[StoredBody], producer: str, sequence: int, enqueue: Op[T]
) -> Transaction:
    """Store bodies in each of the queues and run the script that enqueues their messages; its reply is the last one.

    The bodies are not arguments of the script: Lua would copy and hash every byte of them. The script deletes them if
    it enqueues nothing. The transaction can be repeated if `enqueue` can.
    """
    begin = arrive(queues, [one.reference for one in bodies], producer, sequence)
    pairs = [part for one in bodies for part in (one.reference, one.body)]
    store: Iterator[Op[int]] = (Op(("HSET", keys.bodies, *pairs)) for keys in queues)
    return Transaction((begin, *store, enqueue), repeatable=enqueue.repeatable)


def push(
    keys: QueueKeys, elements: Sequence[bytes], producer: str, sequence: int, now: int, bodies: bool = False
) -> Op[bool]:
    """Push new messages without options into a queue without limits.

    `now`: ms, an estimate of the server's clock. `bodies`: some messages have their bodies apart. The reply is whether
    they are in the queue, by this call or an earlier try; False if the queue has a limit: then `enqueue` must decide.
    """
    call = signatures.push(
        keys,
        bodies=keys.bodies if bodies else None,
        producer=producer,
        sequence=sequence,
        entry=f"{sequence} {now}",
        elements=elements,
    )
    return scripted(call, bool)


def push_keyed(
    keys: QueueKeys, entries: Sequence[Entry], producer: str, sequence: int, now: int, ordered: bool
) -> Op["Enqueued | None"]:
    """Push new messages with a key each, as `push` others: all with an ordering key (`ordered`) or none, and all with a
    deduplication key or none.

    None: the queue has a limit or notes its messages, and `enqueue` must decide.
    """
    deduplicated = [entry for entry in entries if entry.dedup_key is not None]
    call = signatures.push_keyed(
        keys,
        dedup_keys=[keys.dedup(entry.dedup_key) for entry in deduplicated if entry.dedup_key is not None],
        producer=producer,
        sequence=sequence,
        entry=f"{sequence} {now}",
        ordered=ordered,
        count=len(entries),
        elements=[entry.element for entry in entries],
        contents=(
            signatures.push_keyed_content(window=milliseconds(entry.window), digest=entry.digest)
            for entry in deduplicated
        ),
    )
    return scripted(call, lambda reply: None if reply == 0 else _read_enqueued((b"ok", now, *reply)))


def enqueue(
    keys: QueueKeys,
    plain: Sequence[bytes],
    entries: Sequence[Entry] = (),
    producer: str = "",
    sequence: int = 0,
    batches: Mapping[str, int] = NO_BATCHES,
    version: int = 0,
) -> Op[Enqueued]:
    """Enqueue messages. Repeatable only with a producer's sequence: the script then recognizes a repeated call.

    `batches`: how many of the plain ones are of each batch; the script looks for those of entries itself.
    `version`: of the queue's layout, if it has several homes.
    """
    call = signatures.enqueue(
        keys,
        dedup_keys=[
            keys.burst(entry.dedup_key) if entry.replace else keys.dedup(entry.dedup_key)
            for entry in entries
            if entry.dedup_key is not None
        ],
        producer=producer,
        sequence=sequence,
        plain_and_version=f"{len(plain)} {version}" if version else len(plain),
        batches=" ".join([f"{batch} {count}" for batch, count in batches.items()]) if batches else "",
        elements=plain,
        options=map(_option, entries),
    )
    return scripted(call, _read_enqueued, repeatable=bool(producer))


def _option(entry: Entry) -> Record:
    window: int = milliseconds(entry.window)
    digest: Argument = entry.digest
    if entry.dedup_key is None:
        window, digest = 0, ""
    elif entry.replace:
        window, digest = -1, "" if entry.at_most is None else milliseconds(entry.at_most)
    delay = -1 if entry.held and not entry.delay else milliseconds(entry.delay)
    return signatures.enqueue_option(id=entry.id, element=entry.element, delay=delay, window=window, digest=digest)


def _read_enqueued(reply: Any) -> Enqueued:
    status, now, *rest = reply
    if status == b"full":
        return Enqueued("full", now, {}, *map(readable, rest))
    if status == b"moved":
        return Enqueued("moved", now, {}, moved=frozenset(rest[0]), held=frozenset(rest[1]))
    if not rest:
        return Enqueued("ok" if status == b"ok" else "repeated", now, NO_DUPLICATES)
    conflicts = frozenset(-1 - position for position in rest[::2] if position < 0)
    firsts = {
        max(position, -1 - position): first.decode() for position, first in zip(rest[::2], rest[1::2], strict=True)
    }
    return Enqueued("repeated" if status == b"repeated" else "ok", now, firsts, conflicts=conflicts)


def last_sequence(keys: QueueKeys, producer: str) -> Op[int | None]:
    """Read the sequence of a producer's latest call, None if the server does not know the producer."""
    return Op(("HGET", keys.producers, producer), lambda reply: None if reply is None else int(reply.split()[0]))


def count_unroutable(messages: int) -> Op[int]:
    return Op(("HINCRBY", TOPICS, Topics.UNROUTABLE, messages), repeatable=False)


def announce(queue: str) -> Op[int]:
    """Add the queue to the set of all queues, which monitors and dashboards read.

    In a list with ops for other nodes it fails none of them: its answer is None while the node of that set is away.
    """
    return scripted(signatures.announce(queues=QUEUES, queue=queue))
