"""Ops about single messages, wherever they are: look for them, cancel them, and what their handlers report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from reliq.model.element import group_of, name_of
from reliq.model.found import Event, Progress
from reliq.model.instruction import Instruction
from reliq.model.keys import QueueKeys, process_of
from reliq.model.life import Report
from reliq.model.listed_message import Glimpse
from reliq.ops import schema, signatures
from reliq.ops.request import Argument, Op, milliseconds, optional_int, optional_text, read_fields, scripted

SWEEP = 250  #: entries that one call looks at: under 1 ms for Redis
SWEEP_BYTES = 512 * 1024  #: of entries, after which a call looks at no more
REMOVALS = 20  #: in one call: each has its own way through a long list
_KEPT = 7 * 86_400.0  #: seconds after the latest report about a message
_TOLD = 86_400.0  #: seconds for which the note of a cancelled message is kept


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages to look for: one id, those of a key, or those with all of these headers."""

    kind: str
    text: Argument
    headers: tuple[Argument, ...] = ()

    @classmethod
    def with_id(cls, identity: str) -> "Wanted":
        return cls("id", identity)

    @classmethod
    def with_key(cls, key: str) -> "Wanted":
        """Return those with this ordering key or limit key."""
        return cls("group", group_of(key)[:-1])

    @classmethod
    def with_headers(cls, headers: Mapping[str, str]) -> "Wanted":
        parts: list[Argument] = []
        for name, value in headers.items():
            # The pair as producers in Python write it; the script decodes the headers of an element that has it.
            pair = msgspec.msgpack.encode(name) + msgspec.msgpack.encode(value)
            parts += signatures.sweep_header(name=name, value=value, pair=pair)
        return cls("headers", len(headers), tuple(parts))


@dataclass(frozen=True, slots=True)
class Match:
    """A message that a sweep has found; `behind`: how many of its list are taken before it, -1 = unknown."""

    id: str
    behind: int
    glimpse: Glimpse


@dataclass(frozen=True, slots=True)
class Swept:
    """The reply of the sweep script: the matches of a part of a place, and where the next begins, None at the end."""

    following: bytes | int | None
    matches: list[Match]


def sweep(keys: QueueKeys, place: str, start: bytes | int, wanted: Wanted, removals: int = 0) -> Op[Swept]:
    """Look through a part of a list or sorted set of the queue, and remove up to `removals` matching messages."""
    call = signatures.sweep(
        places=keys.places,
        delayed=keys.delayed,
        index=keys.index,
        key=place,
        start=start,
        most=SWEEP,
        most_bytes=SWEEP_BYTES,
        removals=removals,
        kind=wanted.kind,
        wanted=wanted.text,
        headers=wanted.headers,
    )
    return scripted(call, _read_swept)


def _read_swept(reply: list[Any]) -> Swept:
    ended, following, *rest = reply
    rows = zip(rest[::4], rest[1::4], rest[2::4], rest[3::4], strict=True)
    matches = [Match(identity.decode(), behind, Glimpse(part, size)) for identity, behind, size, part in rows]
    return Swept(None if ended else following, matches)


def report(
    keys: QueueKeys, consumer: str, identity: str, tag: str, element: bytes, report: Report, place: int = 0
) -> Op[bool]:
    """Store a report about a message; the reply is False if the consumer does not hold the message any more.

    `place`: where in the processing list it should be, counted from the oldest message.
    """
    fields: list[Argument] = []
    if report.fraction is not None:
        fields += (schema.Report.FRACTION, report.fraction, schema.Report.TEXT, report.text)
    if report.state is not None:
        fields += (schema.Report.STATE, report.state)
    call = signatures.report(
        lease=keys.lease(consumer),
        report=keys.report(identity),
        processing=keys.processing(consumer),
        tag=tag,
        kept=milliseconds(_KEPT),
        name=name_of(element),
        place=place,
        fields=fields,
    )
    return scripted(call, bool)


def reported(keys: QueueKeys, identity: str) -> Op[Progress | None]:
    """Read what handlers have reported about a message."""
    return Op(("HGETALL", keys.report(identity)), _read_report)


def progress_of(keys: QueueKeys, identity: str) -> Op[Progress | None]:
    """Read how far the handler of a message is, without its state."""
    names = (schema.Report.FRACTION, schema.Report.TEXT, schema.Report.AT, schema.Report.TAG)

    def read(reply: list[bytes | None]) -> Progress | None:
        return _progress({name: value for name, value in zip(names, reply, strict=True) if value is not None})

    return Op(("HMGET", keys.report(identity), *names), read)


def _read_report(reply: list[bytes]) -> Progress | None:
    return _progress(read_fields(reply))


def _progress(fields: Mapping[str, bytes]) -> Progress | None:
    if not fields:
        return None
    fraction = fields.get(schema.Report.FRACTION)
    return Progress(
        None if fraction is None else float(fraction),
        fields.get(schema.Report.TEXT, b"").decode(),
        int(fields.get(schema.Report.AT, 0)),
        fields.get(schema.Report.TAG, b"").decode(),
        fields.get(schema.Report.STATE),
    )


def reported_tag(keys: QueueKeys, identity: str) -> Op[str | None]:
    """Read which push of a message the latest report is about."""
    return Op(("HGET", keys.report(identity), schema.Report.TAG), optional_text)


def count_notes(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Return 0 if nothing was reported about these messages, and no message of the queue was told to be cancelled."""
    return Op(("EXISTS", keys.told, *map(keys.report, ids)))


def forget_reports(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Delete what was reported about messages that have left the queue."""
    return Op(("UNLINK", *map(keys.report, ids)))


def tracked(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    """Read where a message entered the queue: a number that grows, or the beginning of its entry of `waiting`."""
    return Op(("HGET", keys.followed, identity))


def in_line(keys: QueueKeys, line: bytes) -> Op[bytes | None]:
    """Read the element of the message that waits with this beginning of its entry: group and turn."""
    command = ("ZRANGEBYLEX", keys.waiting, b"[" + line, b"(" + line + b"\xff", "LIMIT", 0, 1)
    return Op(command, lambda reply: reply[0][len(line) :] if reply else None)


def tracks(keys: QueueKeys) -> Op[bool]:
    """Read whether the queue has an index of its messages."""
    return Op(("HEXISTS", keys.config, schema.Config.TRACK), bool)


def forget_tracked(keys: QueueKeys, cursor: int = 0) -> Op[int]:
    """Delete a part of the index of a queue that tracks its messages no more; the reply: where to go on, 0 = end."""
    call = signatures.forget_tracked(config=keys.config, followed=keys.followed, cursor=cursor, limit=SWEEP)
    return scripted(call)


def count_tracked(keys: QueueKeys) -> list[Op[Any]]:
    """Read how many fields `followed` has, and how many of them are the counts of batches."""
    return [Op(("HLEN", keys.followed)), Op(("HGET", keys.config, schema.Config.BATCHED), optional_int)]


def delete(key: str) -> Op[int]:
    return Op(("UNLINK", key))


def biography(keys: QueueKeys, identity: str, start: bytes) -> Op[tuple[bytes, list[Event]]]:
    """Read the transitions of a message from a part of the history; the reply begins with where the next part does."""
    call = signatures.biography(history=keys.history, id=identity, start=start, most=SWEEP)
    return scripted(call, _read_biography)


def _read_biography(reply: list[bytes]) -> tuple[bytes, list[Event]]:
    rows = zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
    return reply[0], [Event(int(at.partition(b"-")[0]), name.decode(), detail.decode()) for at, name, detail in rows]


def tell(keys: QueueKeys, consumer: str, identity: str) -> Op[bool]:
    """Note that a message was cancelled, if this consumer holds it."""
    processing = keys.processing(consumer)
    call = signatures.tell(told=keys.told, processing=processing, id=identity, kept=milliseconds(_TOLD))
    return scripted(call, bool)


def instruct(keys: QueueKeys, consumer: str, instruction: Instruction, at: int) -> Op[bool]:
    """Tell the process of a consumer what to do; the reply is False if the consumer is not registered."""
    field = instruction.field(process_of(consumer))
    call = signatures.instruct(
        told=keys.told, consumers=keys.consumers, consumer=consumer, field=field, at=at, kept=milliseconds(_TOLD)
    )
    return scripted(call, bool)
