"""Ops for operators: redrive, discard, cancel, purge, and counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.request import Argument, Op, scripted


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter and the element it becomes."""

    element: bytes
    id: str
    again: bytes
    member: str = ""  #: the member of the cycle that the message visits again


def redrive(keys: QueueKeys, revivals: Sequence[Revival]) -> Op[list[int]]:
    letters = [part for one in revivals for part in _revived(one)]
    return scripted(signatures.redrive(places=keys.places, dead=keys.dead, index=keys.index, letters=letters))


def _revived(one: Revival) -> tuple[Argument, ...]:
    return signatures.redrive_letter(element=one.element, id=one.id, member=one.member, again=one.again)


def discard(
    keys: QueueKeys, letters: Sequence[tuple[bytes, str, bytes]], counter: Literal["purged_dead", "trimmed"]
) -> Op[int]:
    """Remove dead letters, given as element, id and the reference to a body that is apart, empty without one."""
    call = signatures.discard(
        dead=keys.dead,
        counters=keys.counters,
        index=keys.index,
        bodies=keys.bodies,
        counter=counter,
        letters=[
            part
            for element, identity, reference in letters
            for part in signatures.discard_letter(element=element, id=identity, reference=reference)
        ],
    )
    return scripted(call)


def cancel(keys: QueueKeys, identity: str) -> Op[bool]:
    return scripted(signatures.cancel(places=keys.places, delayed=keys.delayed, index=keys.index, id=identity), bool)


def purge(keys: QueueKeys, limit: int) -> Op[int]:
    return scripted(signatures.purge(places=keys.places, delayed=keys.delayed, index=keys.index, limit=limit))


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
    call = signatures.stats(
        places=keys.places,
        delayed=keys.delayed,
        dead=keys.dead,
        prepared=keys.prepared,
        flow=keys.flow,
        ticks=keys.ticks,
        lists=map(keys.processing, consumers),
    )
    return scripted(call, _read_counts)


def _read_counts(reply: list[Any]) -> Counts:
    now, ready, waiting, delayed, dead, processing, prepared, paused, *more = reply
    high, low, members, following, overdue, limited_by, breaker, schedules, next_tick, *rest = more
    counters = {name.decode(): int(count) for name, count in sorted(zip(rest[::2], rest[1::2], strict=True))}
    return Counts(
        now, ready, waiting, delayed, dead, processing, prepared, bool(paused), high, low, members, following,
        float(overdue), limited_by.decode(), breaker.decode(), schedules, float(next_tick), counters,
    )  # fmt: skip
