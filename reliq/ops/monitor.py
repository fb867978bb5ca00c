"""Ops of the monitor: promote, and the reclaim script for when Redis refuses the transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from reliq.errors import ForeignKey
from reliq.model.keys import CLOCK, QueueKeys, monitors_since, monitors_until
from reliq.ops import signatures
from reliq.ops.commands import read_hash
from reliq.ops.request import Op, Record, as_text, milliseconds, scripted, scripted_within
from reliq.ops.schema import ClockJump, Counter


def promote(keys: QueueKeys, limit: int) -> Op[tuple[int, int]]:
    """Promote due messages; the reply is how many, and in how many ms the next one is due (-1: none)."""
    call = signatures.promote(keys, limit=limit)
    return scripted(call, tuple)


class Fate(Enum):
    """What becomes of a message that the monitor takes back; the value is its counter."""

    READY = Counter.RECLAIMED
    BLANK = ""  #: the place of a cancelled message goes back as it is
    EXHAUSTED = Counter.dead("max_deliveries")  #: a dead letter: it was delivered too often
    UNREADABLE = Counter.dead("decode")  #: a dead letter

    @property
    def dead(self) -> bool:
        return self in (Fate.EXHAUSTED, Fate.UNREADABLE)

    @property
    def counters(self) -> tuple[str, ...]:
        if self is Fate.BLANK:
            return ()
        return (self.value, Counter.DEAD_LETTERED) if self.dead else (self.value,)


@dataclass(frozen=True, slots=True)
class Return:
    """One message that the monitor takes back from a consumer with an expired lease."""

    element: bytes
    fate: Fate
    id: str
    again: bytes
    group: str = ""  #: digest of the message's key, which a dead letter sets free
    charged: bool = False  #: whether the delivery counts


def reclaim_when_full(keys: QueueKeys, consumer: str, deadline: str, returns: Sequence[Return]) -> Op[int]:
    call = signatures.reclaim_when_full(
        keys,
        processing=keys.processing(consumer),
        lease=keys.lease(consumer),
        deadline=deadline,
        messages=map(_returned, returns),
    )
    return scripted(call)


def _returned(one: Return) -> Record:
    return signatures.reclaim_when_full_message(
        element=one.element,
        destination="dead" if one.fate.dead else "ready",
        counter=one.fate.value,
        id=one.id,
        again=one.again,
    )


def lease_text(keys: QueueKeys, consumer: str) -> Op[bytes | None]:
    """Read the deadline of a lease unconverted, for `reclaim_when_full`."""
    return Op(("GET", keys.lease(consumer)))


def mark_of(keys: QueueKeys, consumer: str) -> Op[bytes | None]:
    """Read the consumer's field in `trying` (reliq_monitor.marks)."""
    return Op(("HGET", keys.trying, consumer))


def set_mark(keys: QueueKeys, consumer: str, mark: bytes) -> Op[int]:
    return Op(("HSET", keys.trying, consumer, mark))


def add_consumers(keys: QueueKeys, consumers: Sequence[str]) -> Op[int]:
    """Register consumers that hold messages."""
    return Op(("SADD", keys.consumers, *consumers))


def scan_processing(keys: QueueKeys, cursor: int, step: int) -> Op[tuple[int, list[str]]]:
    """Read one page of all keys: the next cursor, 0 at the end, and the consumers of the processing lists found."""
    prefix = keys.processing("")  # queue names contain no special characters of patterns

    def read(reply: list[Any]) -> tuple[int, list[str]]:
        return int(reply[0]), [name.decode().removeprefix(prefix) for name in reply[1]]

    return Op(("SCAN", cursor, "MATCH", prefix + "*", "COUNT", step), read)


def scan_hash(key: str, cursor: int, step: int) -> Op[tuple[int, list[tuple[bytes, bytes]]]]:
    """Read one page of a hash: the next cursor, 0 at the end, and fields with their values."""
    return Op(("HSCAN", key, cursor, "COUNT", step), _read_fields)


def _read_fields(reply: list[Any]) -> tuple[int, list[tuple[bytes, bytes]]]:
    cursor, fields = reply
    return int(cursor), list(zip(fields[::2], fields[1::2], strict=True))


def remove_fields(key: str, fields: Sequence[bytes]) -> Op[int]:
    return Op(("HDEL", key, *fields))


@dataclass(frozen=True, slots=True)
class Attendance:
    """The monitors that share the queues of a server. `new`: the one that asks was not known."""

    new: bool
    alive: int
    leading: tuple[str, ...]  #: those that have a share


def attend(tag: str, monitor: str, lasts: float, most: int) -> Op[Attendance]:
    """Note that a monitor is alive for `lasts` seconds; the reply has the `most` monitors that came first."""
    call = signatures.attend(
        monitors_until=monitors_until(tag),
        monitors_since=monitors_since(tag),
        monitor=monitor,
        lasts=milliseconds(lasts),
        most=most,
    )
    return scripted(call, _read_attendance)


def _read_attendance(reply: list[Any]) -> Attendance:
    new, alive, *leading = reply
    return Attendance(bool(new), alive, tuple(one.decode("utf-8", "replace") for one in leading))


def resign(tag: str, monitor: str) -> list[Op[int]]:
    """Remove a monitor from those that share the queues."""
    return [Op(("ZREM", key, monitor)) for key in (monitors_until(tag), monitors_since(tag))]


def note_clock_jump(now: int, by: int) -> Op[int]:
    """Record a jump of the server's clock, in ms."""
    return Op(("HSET", CLOCK, ClockJump.AT, now, ClockJump.BY, by))


def clock_jump() -> Op[dict[str, str]]:
    """Read the latest jump of the server's clock, the fields of `schema.ClockJump`; empty if there was none."""
    return read_hash(CLOCK)


def type_of(key: str) -> Op[str]:
    """Read the type of a key, "none" if it does not exist."""
    return Op(("TYPE", key), as_text)


def check_type(key: str, kind: str, expected: str) -> None:
    """Raise ForeignKey if a key exists with another type."""
    if kind not in ("none", expected):
        raise ForeignKey(
            f"Redis key {key!r} is a {kind}, reliq needs a {expected} there: another application shares the prefix "
            "reliq:. Rename or delete that key; nothing was changed"
        )


def advance_within(keys: QueueKeys, element: bytes, fate: Fate) -> Op[int]:
    """Advance the order inside a Transaction."""
    call = signatures.advance_within(keys, element=element, counter=fate.value, dead=fate.dead)
    return scripted_within(call)
