"""New messages: enqueue, publish, the cycle; and who takes what is published."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from reliq.model.keys import QUEUES, TOPICS, QueueKeys
from reliq.ops.request import Argument, Op, milliseconds, readable, scripted


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


def push(keys: QueueKeys, elements: Sequence[bytes], producer: str, sequence: int, now: int) -> Op[bool]:
    """New messages without options into a queue without limits; `now`: ms, the server's clock as far as it is known.

    Answers whether they are there, now or from an earlier try; not where the queue has a limit: `enqueue` is to decide.
    """
    names = (keys.messages, keys.counters, keys.config, keys.producers)
    return scripted("push", names, (producer, sequence, f"{sequence} {now}", *elements), bool)


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
    op = scripted("enqueue", names, arguments, _read_enqueued)
    return op if producer else Op(op.command, op.read, op.script, repeatable=False)


def _read_enqueued(reply: Any) -> Enqueued:
    status, now, *rest = reply
    if status == b"full":
        return Enqueued("full", now, {}, *map(readable, rest))
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
    return scripted("publish", names, arguments, lambda reply: Published(*map(readable, reply)))


def bind(verb: Literal["bind", "unbind"], bindings: Sequence[str]) -> Op[int]:
    """Answers how many bindings changed."""
    return scripted("bind", (TOPICS,), (verb, *bindings))


def alternate(queue: str) -> Op[int]:
    """Where unroutable messages go."""
    return scripted("bind", (TOPICS,), ("alternate", queue))


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


def cycle_add(keys: QueueKeys, members: Sequence[Member], producer: str = "", sequence: int = 0) -> Op[Entered]:
    """With a producer's sequence, a call that arrives again or late is known and brings no removed member back."""
    arguments: list[Argument] = [producer, sequence]
    for one in members:
        arguments += (one.member, one.group, one.id, one.element)
    names = (*keys.places, keys.delayed, keys.producers)
    return scripted(
        "cycle_add",
        names,
        arguments,
        lambda reply: Entered(reply[0].decode(), reply[1], [readable(one) for one in reply[2:]]),
    )


def cycle_remove(keys: QueueKeys, groups: Sequence[str]) -> Op[list[int]]:
    return scripted("cycle_remove", (*keys.places, keys.delayed, keys.index), groups)


def announce(queue: str) -> Op[int]:
    """Enter the queue into the set of all queues: monitors and dashboards look there."""
    return scripted("announce", (QUEUES,), (queue,))
