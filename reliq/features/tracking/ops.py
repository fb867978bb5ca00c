"""Ops that look for messages wherever they are, cancel them, and read their index and history."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from reliq.features.tracking import signatures
from reliq.features.tracking.model import Event
from reliq.model.element import group_of
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.ops import schema
from reliq.ops.partitions import Stray
from reliq.ops.request import Argument, Op, milliseconds, optional_int, scripted

SWEEP = 250  #: entries that one call looks at: under 1 ms for Redis
SWEEP_BYTES = 512 * 1024  #: of entries, after which a call looks at no more
REMOVALS = 20  #: in one call: each has its own way through a long list
_TOLD = 86_400.0  #: seconds for which the note of a cancelled message is kept


@dataclass(frozen=True, slots=True)
class Criterion:
    """The messages to look for: one id, those of a key, or those with all of these headers."""

    kind: str
    text: Argument
    fits: Callable[[ListedMessage], bool]  #: as the script judges
    headers: tuple[tuple[Argument, ...], ...] = ()

    @classmethod
    def with_id(cls, identity: str) -> "Criterion":
        return cls("id", identity, lambda message: message.id == identity)

    @classmethod
    def with_key(cls, key: str) -> "Criterion":
        """Return those with this ordering key or limit key."""
        return cls("group", group_of(key)[:-1], lambda message: key in (message.key, message.limit_key))

    @classmethod
    def with_headers(cls, headers: Mapping[str, str]) -> "Criterion":
        parts: list[tuple[Argument, ...]] = []
        for name, value in headers.items():
            # The pair as producers in Python write it; the script decodes the headers of an element that has it.
            pair = msgspec.msgpack.encode(name) + msgspec.msgpack.encode(value)
            parts.append(signatures.sweep_header(name=name, value=value, pair=pair))
        return cls("headers", len(headers), lambda message: headers.items() <= message.headers.items(), tuple(parts))


@dataclass(frozen=True, slots=True)
class Match:
    """A message that a sweep has found; `behind`: how many of its list are taken before it, -1 = unknown."""

    id: str
    behind: int
    glimpse: Glimpse
    stray: Stray | None = None  #: a monitor takes it to another home, so that the sweep has not removed it


@dataclass(frozen=True, slots=True)
class Swept:
    """The reply of the sweep script: the matches of a part of a place, and where the next begins, None at the end."""

    following: bytes | int | None
    matches: list[Match]


def sweep(
    keys: QueueKeys, place: str, start: bytes | int, wanted: Criterion, removals: int = 0, call: str | None = None
) -> Op[Swept]:
    """Look through a part of a list or sorted set of the queue, and remove up to `removals` matching messages.

    `call`: of `new_call`; once messages were removed under it, such calls find these, without glimpses, and go on
    where they began.
    """
    swept = signatures.sweep(
        keys,
        call=call,
        key=place,
        start=start,
        most=SWEEP,
        most_bytes=SWEEP_BYTES,
        removals=removals,
        kind=wanted.kind,
        wanted=wanted.text,
        headers=wanted.headers,
    )
    return scripted(swept, _read_swept)


def _read_swept(reply: list[Any]) -> Swept:
    ended, following, *rest = reply
    rows = zip(rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True)
    return Swept(None if ended else following, [_read_match(*row) for row in rows])


def _read_match(identity: bytes, behind: int | bytes, size: int, part: bytes) -> Match:
    glimpse = Glimpse(part, size)
    if isinstance(behind, int):
        return Match(identity.decode(), behind, glimpse)
    return Match(identity.decode(), -1, glimpse, Stray(behind))


def tracked(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    """Read where a message entered the queue: a number that grows, or the beginning of its entry of `waiting`."""
    return Op(("HGET", keys.followed, identity))


def flow_waited_for(keys: QueueKeys, identity: str) -> Op[str]:
    """Read for which flow a message waits; empty if it waits for none."""
    return Op(("HGET", keys.followed, f"\v{identity}"), _flow_of)


def _flow_of(record: bytes | None) -> str:
    _, *rest = (record or b"x").decode().split()  # it begins with x if the message was given up
    return rest[2] if len(rest) > 2 else ""


def tracks(keys: QueueKeys) -> Op[bool]:
    """Read whether the queue has an index of its messages."""
    return Op(("HEXISTS", keys.config, schema.Config.TRACK), bool)


def forget_tracked(keys: QueueKeys, cursor: int = 0) -> Op[int]:
    """Delete a part of the index of a queue that tracks its messages no more; the reply: where to go on, 0 = end."""
    call = signatures.forget_tracked(keys, cursor=cursor, limit=SWEEP)
    return scripted(call)


def count_tracked(keys: QueueKeys) -> list[Op[Any]]:
    """Read how many fields `followed` has, how many of them are the counts of batches, and whether it has records."""
    return [
        Op(("HLEN", keys.followed)),
        Op(("HGET", keys.config, schema.Config.BATCHED), optional_int),
        Op(("HEXISTS", keys.config, schema.Config.RECORDED), bool),
    ]


def biography(keys: QueueKeys, identity: str, start: bytes) -> Op[tuple[bytes, list[Event]]]:
    """Read the transitions of a message from a part of the history; the reply begins with where the next part does."""
    call = signatures.biography(keys, id=identity, start=start, most=SWEEP)
    return scripted(call, _read_biography)


def _read_biography(reply: list[bytes]) -> tuple[bytes, list[Event]]:
    rows = zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
    return reply[0], [Event(int(at.partition(b"-")[0]), name.decode(), detail.decode()) for at, name, detail in rows]


def tell(keys: QueueKeys, consumer: str, identity: str, sent: int) -> Op[bool]:
    """Note that a message, which was sent at this ms, was cancelled, if this consumer holds it."""
    processing = keys.processing(consumer)
    call = signatures.tell(keys, processing=processing, id=identity, sent=sent, kept=milliseconds(_TOLD))
    return scripted(call, bool)
