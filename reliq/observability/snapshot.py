"""Snapshots of many queues, for metrics, `reliq top` and the audit. One round trip for every 100 queues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys, logical_name
from reliq.model.partitions import Layout, read_layout
from reliq.ops import Counts, Op, Steps
from reliq.ops.schema import Counter
from reliq.protocol.queue import Stats, from_counts, summed
from reliq.runtime.looking import is_away, missing_now, unseen

GROUP = 100  #: queues per round trip
_LOOKS = 3  #: reads of a queue while its set of consumers changes
_READS = 4  #: ops per queue
_MOST_UNREADABLE = 20  #: queues; if there are more, the fault is that of the server

#: Fields of a snapshot that are added up over the partitions of a queue, and those of which the largest counts.
_ADDED = ("max_length", "high", "low", "members", "schedules")
_LARGEST = ("overdue", "next_tick", "tick_overdue")

#: Counters of messages that have left the queue for good.
GONE = (
    Counter.ACKED, Counter.PURGED, Counter.PURGED_DEAD, Counter.TRIMMED, Counter.CANCELLED, Counter.WITHDRAWN,
    Counter.REPLACED, Counter.SENT_HOME,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueSnapshot(Stats):
    """The statistics of a queue at one instant, with further fields for operators."""

    overdue: float = 0.0  #: seconds since the first delayed message was due; 0.0 if none is due
    max_length: int = 0  #: 0 = unlimited
    high: int = 0  #: ready messages with high priority
    low: int = 0  #: ready messages with low priority
    members: int = 0  #: members of the cycle
    schedules: int = 0  #: with a next tick
    next_tick: float = 0.0  #: seconds since the epoch at which the first of these is due; 0.0 without one
    tick_overdue: float = 0.0  #: seconds since it was due; 0.0 if none is due
    exact: bool = True  #: whether the lists of all consumers were read at the same instant
    unseen: int = 0  #: partitions that did not answer an operator, and are not counted

    @property
    def normal(self) -> int:
        """Ready messages of normal priority that may start."""
        return self.ready - self.waiting - self.high - self.low

    @property
    def missing(self) -> int:
        """Enqueued messages that are nowhere: not prepared, ready, processing, delayed, dead or counted as gone.

        0 is what reliq promises. Below 0: messages that were never enqueued, such as a second copy or one pushed
        without the enqueue script.
        """
        gone = sum(self.counters.get(name, 0) for name in GONE)
        here = self.ready + self.processing + self.delayed + self.dead + self.prepared
        return self.counters.get(Counter.ENQUEUED, 0) - gone - here


def read_queues(names: Sequence[str]) -> Steps[list[QueueSnapshot]]:
    """Read a snapshot of each of these queues, each at its own instant; of one with partitions, that of all.

    For an operator who looks, queues and partitions that do not answer are left out, unless all of them are.
    """
    readings, unreadable = yield from _readings(names)
    for error in unreadable.values():
        raise error
    return list(readings.values())


def read_partitions(queue: str, layout: Layout) -> Steps[dict[str, QueueSnapshot]]:
    """Read a snapshot of each partition of a queue that can be read, by the queue that it is in Redis."""
    return (yield from _readable(layout.every(queue), {}, {}, "partition"))


def _whole(parts: Sequence[QueueSnapshot], unseen: int) -> QueueSnapshot:
    exact = all(one.exact for one in parts) and not unseen
    return replace(summed(parts, _ADDED, _LARGEST), exact=exact, unseen=unseen)


def _read(names: Sequence[str], layouts: dict[str, Layout]) -> Steps[list[QueueSnapshot]]:
    """Read a snapshot of each of these, and note the layouts of those with partitions."""
    readings = yield from _look(names, layouts)
    for _ in range(_LOOKS - 1):
        unsure = [place for place, reading in enumerate(readings) if not reading.exact]
        if not unsure:
            break
        again = yield from _look([names[place] for place in unsure], layouts)
        for place, reading in zip(unsure, again, strict=True):
            readings[place] = reading
    return readings


def read_readable(names: Sequence[str]) -> Steps[tuple[list[QueueSnapshot], dict[str, str]]]:
    """Read those queues that can be read; return them, and of each other queue why it cannot be read.

    A key of another application, or a value that reliq did not write, must not hide the other queues. Queues that do
    not answer are treated as by `read_queues`.
    """
    readings, unreadable = yield from _readings(names)
    return list(readings.values()), {name: why_unreadable(error) for name, error in unreadable.items()}


def _readings(
    names: Sequence[str], looks: int = _LOOKS
) -> Steps[tuple[dict[str, QueueSnapshot], dict[str, Exception]]]:
    """Read those queues that can be read; return them, and the errors of the others, by their names.

    Those whose partitions have changed meanwhile are read again: the counters of a forgotten one have moved.
    """
    layouts: dict[str, Layout] = {}
    unreadable: dict[str, Exception] = {}
    found = yield from _readable(names, layouts, unreadable, "queue")
    parts = [part for name, layout in layouts.items() if name in found for part in layout.every(name)[1:]]
    if not parts:
        return found, unreadable
    without: dict[str, Exception] = {}
    others = yield from _readable(parts, {}, without, "partition")
    unreadable |= {logical_name(name): error for name, error in without.items()}
    readings: dict[str, QueueSnapshot] = {}
    for name, first in found.items():
        every = layouts[name].every(name)[1:] if name in layouts else []
        if name not in unreadable:
            there = [others[part] for part in every if part in others]
            readings[name] = _whole([first, *there], len(every) - len(there)) if every else first
    moved = (yield from _changed({name: layouts[name] for name in readings if name in layouts})) if looks > 1 else []
    if moved:
        again, wrong = yield from _readings(moved, looks - 1)
        return {name: again.get(name, one) for name, one in readings.items() if name not in wrong}, unreadable | wrong
    return readings, unreadable


def _changed(layouts: dict[str, Layout]) -> Steps[list[str]]:
    """Return the queues that do not have these partitions any more."""
    try:
        texts = (yield [ops.partitions(QueueKeys(name)) for name in layouts]) if layouts else []
    except ReliqError:  # its partitions have just answered
        return []
    now = zip(layouts.items(), texts, strict=True)
    return [name for (name, layout), text in now if read_layout(text).version != layout.version]


def _readable(
    names: Sequence[str], layouts: dict[str, Layout], unreadable: dict[str, Exception], what: str
) -> Steps[dict[str, QueueSnapshot]]:
    """Read those of these queues, or partitions, that can be read, by halves if some cannot; note the others."""
    found: dict[str, QueueSnapshot] = {}
    away: Exception | None = None
    groups = [names]
    while groups:
        some = groups.pop()
        try:
            found |= zip(some, (yield from _read(some, layouts)), strict=True)
        except Exception as error:
            missing = is_away(error)
            if missing and (missing_now() is None or not getattr(error, "node", "")):
                raise
            if len(some) > 1:
                groups += [some[len(some) // 2 :], some[: len(some) // 2]]
            elif missing and isinstance(error, ReliqError):
                unseen(f"{what} {some[0]}", error)
                away = error
            elif len(unreadable) == _MOST_UNREADABLE:
                raise
            else:
                unreadable[some[0]] = error
    if away is not None and not found and what == "queue":
        raise away
    return {name: found[name] for name in names if name in found}


def why_unreadable(error: Exception) -> str:
    """Explain in a sentence why a queue cannot be read, without the values that are in it."""
    if isinstance(error, ReliqError):
        return str(error)
    return f"one of its keys holds a value that reliq did not write ({type(error).__name__})"


def _look(names: Sequence[str], layouts: dict[str, Layout]) -> Steps[list[QueueSnapshot]]:
    every = [QueueKeys(name) for name in names]
    groups = [every[start : start + GROUP] for start in range(0, len(every), GROUP)]
    readings: list[QueueSnapshot] = []
    consumers: list[list[str]] = []
    if groups:
        consumers = yield [ops.members(keys.consumers) for keys in groups[0]]
    for place, group in enumerate(groups, 1):
        reads = [op for keys, known in zip(group, consumers, strict=True) for op in _reads(keys, known)]
        ahead = [ops.members(keys.consumers) for keys in groups[place]] if place < len(groups) else []
        replies = yield [*reads, *ahead]
        for at, (keys, known) in enumerate(zip(group, consumers, strict=True)):
            (max_length, partitions), before, counts, after = replies[at * _READS : (at + 1) * _READS]
            readings.append(_reading(keys, known, before, counts, after, max_length))
            if (layout := read_layout(partitions)).several:
                layouts[keys.queue] = layout
        consumers = replies[len(reads) :]
    return readings


def _reads(keys: QueueKeys, consumers: Sequence[str]) -> list[Op[Any]]:
    # Not a MULTI, in which a full Redis refuses even reads. The numbers that must agree come from one script; the
    # consumers read before and after it show whether it has counted all lists.
    # The layout comes first: one that is still the same afterwards is that of all numbers.
    return [
        ops.room_and_partitions(keys),
        ops.members(keys.consumers),
        ops.stats(keys, consumers),
        ops.members(keys.consumers),
    ]


def _reading(
    keys: QueueKeys,
    known: Sequence[str],
    before: Sequence[str],
    counts: Counts,
    after: Sequence[str],
    max_length: int | None,
) -> QueueSnapshot:
    return from_counts(
        QueueSnapshot,
        keys,
        counts,
        len(after),
        overdue=counts.overdue / 1000,
        max_length=max_length or 0,
        high=counts.high,
        low=counts.low,
        members=counts.members,
        schedules=counts.schedules,
        next_tick=counts.next_tick / 1000,
        tick_overdue=max(0.0, counts.now - counts.next_tick) / 1000 if counts.schedules else 0.0,
        exact=set(known) >= {*before, *after},
    )
