"""Deletion of a queue, with everything that belongs to it."""

import math
from dataclasses import asdict, dataclass

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.ops import Steps, Transaction, Watch
from reliq.ops.schema import Topics
from reliq.protocol.partition import ANNOUNCE_EVERY

_TRIES = 10


class QueueInUse(ReliqError):
    """A queue that still has messages, consumers or jobs is not deleted."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deleted queue had."""

    ready: int
    processing: int
    delayed: int
    dead: int
    prepared: int
    staged: int  #: 1 if a Spark job was unfinished
    consumers: int
    schedules: int
    bindings: int

    @property
    def messages(self) -> int:
        return self.ready + self.processing + self.delayed + self.dead + self.prepared + self.staged

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in asdict(self).items() if count) or "nothing"


def delete(keys: QueueKeys, *, force: bool) -> Steps[Deleted]:
    """Delete a queue: its messages, policy, counters, schedules and bindings; return what it had.

    Raises QueueInUse if it has messages or consumers, unless `force`. If a message is sent meanwhile, the deletion
    begins again.
    """
    for _ in range(_TRIES):
        consumers = yield ops.members(keys.consumers)
        elsewhere = yield from _elsewhere(keys.queue)
        there = yield from _look(keys, consumers, elsewhere)
        if not force:
            yield from _check_unused(keys, there)
        drop, unlist = ops.drop_queue(keys, consumers)
        if (yield Transaction((drop,))) is not None:
            yield from _forget(elsewhere)
            yield unlist
            if (yield ops.exists(keys.producers)):  # a message came in between: its queue must stay known
                yield ops.announce(keys.queue)
            return there
    raise QueueInUse(f"queue {keys.queue!r} changes all the time: stop its producers and workers first")


def _check_unused(keys: QueueKeys, there: Deleted) -> Steps[None]:
    """Raise QueueInUse if the queue has messages or consumers, or a producer that would not announce it again."""
    if there.messages:
        raise QueueInUse(f"queue {keys.queue!r} has messages ({there}): handle or purge them, or use --force")
    if there.consumers:
        raise QueueInUse(f"queue {keys.queue!r} is in use ({there}): stop its workers, or use --force")
    silent = yield from _silent_for(keys)
    if silent < ANNOUNCE_EVERY:
        raise QueueInUse(
            f"a producer has sent to queue {keys.queue!r} {silent:.0f} s ago: wait until none has for "
            f"{ANNOUNCE_EVERY:.0f} s, or use --force"
        )


def _silent_for(keys: QueueKeys) -> Steps[float]:
    """Return the seconds since the latest send. A producer that has sent recently does not announce the queue again."""
    now, producers = yield [ops.server_time(), ops.read_hash(keys.producers)]
    latest = max((float(entry.split()[1]) for entry in producers.values()), default=-math.inf)
    return float(max(0.0, (now - latest) / 1000))


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """What other keys say about the queue."""

    bindings: list[str]
    schedules: list[str]
    is_alternate: bool


def _elsewhere(queue: str) -> Steps[_Elsewhere]:
    topics, schedules = yield [ops.topics(), ops.schedule_names()]
    return _Elsewhere(
        [field for field in topics if field.startswith(f"{queue} ")],
        [name for name, home in schedules.items() if home == queue],
        topics.get(Topics.ALTERNATE) == queue,
    )


def _look(keys: QueueKeys, consumers: list[str], elsewhere: _Elsewhere) -> Steps[Deleted]:
    """Count what the queue has, and watch it."""
    watched = (
        keys.messages, keys.high, keys.low, keys.waiting, keys.next_round, keys.delayed, keys.dead, keys.prepared,
        keys.jobs, keys.consumers, *map(keys.processing, consumers),
    )  # fmt: skip
    yield Watch(watched)
    counts, staged = yield [ops.stats(keys, consumers), ops.exists(keys.jobs)]
    return Deleted(
        counts.ready + counts.waiting, counts.processing, counts.delayed, counts.dead, counts.prepared, int(staged),
        len(consumers), len(elsewhere.schedules), len(elsewhere.bindings),
    )  # fmt: skip


def _forget(elsewhere: _Elsewhere) -> Steps[None]:
    if elsewhere.bindings:
        yield ops.bind("unbind", elsewhere.bindings)
    if elsewhere.schedules:
        yield ops.unindex_schedules(elsewhere.schedules)
    if elsewhere.is_alternate:
        yield ops.no_alternate()
