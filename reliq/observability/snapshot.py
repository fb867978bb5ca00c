"""Many queues at one look: what metrics, `reliq top` and the audit read. One round trip for every 100 queues."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Counts, Op, Steps
from reliq.protocol.queue import Stats, age_of_oldest

GROUP = 100  #: queues a round trip
_LOOKS = 3  #: at a queue whose consumers change while it is read
_READS = 5  #: ops a queue

#: Counters of messages that have left the queue for good.
GONE = ("acked", "purged", "purged_dead", "trimmed", "cancelled", "withdrawn")


@dataclass(frozen=True, slots=True)
class QueueSnapshot(Stats):
    """A queue at one instant, with what only operators ask."""

    overdue: float = 0.0  #: seconds since the first delayed message was due; 0.0 when none is
    max_length: int = 0  #: 0 = unlimited
    high: int = 0  #: of the ready ones, those with high priority
    low: int = 0  #: and with low priority
    members: int = 0  #: of the cycle
    exact: bool = True  #: every consumer's list was read in the same instant

    @property
    def normal(self) -> int:
        """Of the ready ones, those of normal priority that may start."""
        return self.ready - self.waiting - self.high - self.low

    @property
    def missing(self) -> int:
        """Messages that were enqueued and are nowhere: not prepared, ready, processing, delayed, dead or counted gone.

        0 is what the promise says. Below 0: messages that were never enqueued, such as a second copy or one pushed
        past the enqueue script.
        """
        gone = sum(self.counters.get(name, 0) for name in GONE)
        here = self.ready + self.processing + self.delayed + self.dead + self.prepared
        return self.counters.get("enqueued", 0) - gone - here


def every_queue() -> Steps[list[str]]:
    """The names of all queues this server has seen."""
    names: list[str] = yield ops.queue_names()
    return names


def read_queues(names: Sequence[str]) -> Steps[list[QueueSnapshot]]:
    """Each of these queues at one instant of its own."""
    readings = yield from _look(names)
    for _ in range(_LOOKS - 1):
        unsure = [place for place, reading in enumerate(readings) if not reading.exact]
        if not unsure:
            break
        again = yield from _look([names[place] for place in unsure])
        for place, reading in zip(unsure, again, strict=True):
            readings[place] = reading
    return readings


def _look(names: Sequence[str]) -> Steps[list[QueueSnapshot]]:
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
            readings.append(_reading(keys.queue, known, *replies[at * _READS : (at + 1) * _READS]))
        consumers = replies[len(reads) :]
    return readings


def _reads(keys: QueueKeys, consumers: Sequence[str]) -> list[Op[Any]]:
    # Not a MULTI: a full Redis refuses even reads in one. The numbers that must agree come from one script; the
    # consumers right before and after it tell whether it has looked into every list.
    return [
        ops.members(keys.consumers),
        ops.stats(keys, consumers),
        ops.members(keys.consumers),
        ops.command("HGET", keys.config, "max_length"),
        ops.command("ZRANGE", keys.delayed, 0, 0, "WITHSCORES"),
    ]


def _reading(
    queue: str,
    known: Sequence[str],
    before: Sequence[str],
    counts: Counts,
    after: Sequence[str],
    max_length: bytes | None,
    first_due: Sequence[bytes],
) -> QueueSnapshot:
    return QueueSnapshot(
        queue=queue,
        ready=counts.ready,
        processing=counts.processing,
        delayed=counts.delayed,
        dead=counts.dead,
        waiting=counts.waiting,
        oldest_ready_age=age_of_oldest(queue, counts.following, counts.now),
        consumers=len(after),
        paused=counts.paused,
        counters=counts.counters,
        prepared=counts.prepared,
        overdue=max(0.0, (counts.now - float(first_due[1])) / 1000) if first_due else 0.0,
        max_length=int(max_length or 0),
        high=counts.high,
        low=counts.low,
        members=counts.members,
        exact=set(known) >= {*before, *after},
    )
