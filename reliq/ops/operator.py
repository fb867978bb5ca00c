"""Ops for operators: redrive, discard, cancel, purge, and counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reliq.model.keys import QueueKeys
from reliq.ops.request import Op, scripted


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter and the element it becomes."""

    element: bytes
    id: str
    again: bytes
    member: str = ""  #: the member of the cycle that the message visits again


def redrive(keys: QueueKeys, revivals: Sequence[Revival]) -> Op[list[int]]:
    arguments = [part for one in revivals for part in (one.element, one.id, one.member, one.again)]
    return scripted("redrive", (*keys.places, keys.dead, keys.index), arguments)


def discard(
    keys: QueueKeys, letters: Sequence[tuple[bytes, str, bytes]], counter: Literal["purged_dead", "trimmed"]
) -> Op[int]:
    """Remove dead letters, given as element, id and the reference to a body that is apart, empty without one."""
    arguments = [counter, *(part for letter in letters for part in letter)]
    return scripted("discard", (keys.dead, keys.counters, keys.index, keys.bodies), arguments)


def cancel(keys: QueueKeys, identity: str) -> Op[bool]:
    return scripted("cancel", (*keys.places, keys.delayed, keys.index), (identity,), bool)


def purge(keys: QueueKeys, limit: int) -> Op[int]:
    return scripted("purge", (*keys.places, keys.delayed, keys.index), (limit,))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a queue at one instant. `following`: for each priority, the element that is taken next, with a
    part of its body at most. `overdue`: ms for which the first delayed message has been due. `limited_by`: the limit
    that gives out nothing at this moment, or "". `schedules`: those with a next tick; `next_tick`: ms at which the
    first one is due.
    """

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
    overdue: float
    limited_by: str
    breaker: str
    schedules: int
    next_tick: float
    counters: dict[str, int]


def stats(keys: QueueKeys, consumers: Iterable[str]) -> Op[Counts]:
    """Read the counts of a queue, including the messages that these consumers hold."""
    queue_keys = (*keys.places, keys.delayed, keys.dead, keys.prepared, keys.flow, keys.ticks)
    names = [*queue_keys, *map(keys.processing, consumers)]
    return scripted("stats", names, (), _read_counts)


def _read_counts(reply: list[Any]) -> Counts:
    now, ready, waiting, delayed, dead, processing, prepared, paused, *more = reply
    high, low, members, following, overdue, limited_by, breaker, schedules, next_tick, *rest = more
    counters = {name.decode(): int(count) for name, count in sorted(zip(rest[::2], rest[1::2], strict=True))}
    return Counts(
        now, ready, waiting, delayed, dead, processing, prepared, bool(paused), high, low, members, following,
        float(overdue), limited_by.decode(), breaker.decode(), schedules, float(next_tick), counters,
    )  # fmt: skip
