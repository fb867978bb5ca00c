"""Deletion of a queue, with everything that belongs to it."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from typing import Any

from reliq import ops
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.ops import Steps, Together, Transaction, Watch
from reliq.protocol.done_in_part import done_everywhere
from reliq.protocol.features import COUNTED, NOTES, Counted
from reliq.protocol.home import ANNOUNCE_EVERY
from reliq.protocol.homes import checked
from reliq.runtime.pieces import pieces

_Names = list[list[str]]  #: that features note of a queue outside of it, of each of NOTES

_REFUSED = (RedisUnavailable, OutcomeUnknown, QueueFull)
_TRIES = 10
_TOGETHER = 250  #: names that a call forgets: so many take Redis about two milliseconds


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
    parked: int
    staged: int  #: 1 if a Spark job was unfinished
    consumers: int
    schedules: int = 0
    bindings: int = 0

    @property
    def messages(self) -> int:
        here = self.ready + self.processing + self.delayed + self.dead
        return here + self.prepared + self.parked + self.staged

    def __str__(self) -> str:
        return ", ".join(f"{count} {name}" for name, count in asdict(self).items() if count) or "nothing"


def delete(queue: str, *, force: bool) -> Steps[Deleted]:
    """Delete a queue: its messages, policy, counters, schedules and bindings; return what it had.

    Raises QueueInUse if it has messages or consumers, unless `force`. If a message is sent meanwhile, the deletion
    begins again.
    """
    had: list[Deleted] = []
    for _ in range(_TRIES):
        first, *others = yield from _every_home(queue)
        if others and not force:
            yield from _check_all_unused([first, *others])
        deleted: dict[str, int | ReliqError] = {}
        for keys in reversed(others):  # the first one has the layout: an interrupted deletion can be repeated
            try:
                there = yield from _delete(keys, force)
            except _REFUSED as error:
                deleted[keys.queue] = error
            else:
                had.append(there)
                deleted[keys.queue] = there.messages
        if any(isinstance(one, ReliqError) for one in deleted.values()):
            deleted[first.queue] = ReliqError("it is deleted after all others")
        done_everywhere("the deletion", queue, deleted)
        if others and any((yield [ops.exists(keys.producers) for keys in others])):
            continue  # a message came in between
        try:
            there = yield from _delete(first, force)
        except _REFUSED as error:
            done_everywhere("the deletion", queue, {**deleted, first.queue: error})
            raise
        return _summed([*had, there])
    raise _changing(queue)


def _every_home(queue: str) -> Steps[list[QueueKeys]]:
    """Return the homes of a queue, the first one first; also those that were forgotten.

    The layout does not name these, and they were empty. A node that has come back with an older state may have messages
    in them again.
    """
    layout, names = (yield ops.layout(QueueKeys(queue))), (yield ops.queue_names())
    return [keys for keys in map(QueueKeys, dict.fromkeys([*layout.every(queue), *names])) if keys.logical == queue]


def _changing(queue: str) -> QueueInUse:
    return QueueInUse(f"queue {queue!r} changes all the time: stop its producers and workers first")


def _summed(had: Sequence[Deleted]) -> Deleted:
    return Deleted(*map(sum, zip(*map(astuple, had), strict=True)))


def _check_all_unused(every: Sequence[QueueKeys]) -> Steps[None]:
    """Raise QueueInUse if one of the homes is in use, before anything is deleted."""
    try:
        found = checked((yield Together([_state_of(keys) for keys in every])))
    except (RedisUnavailable, OutcomeUnknown) as error:
        queue = every[0].queue
        error.args = (f"{error}: nothing of queue {queue!r} was deleted, as all of it must be seen to be unused",)
        raise
    _check_unused(every[0].queue, _summed([there for there, _ in found]), min(silent for _, silent in found))


def _state_of(keys: QueueKeys) -> Steps[tuple[Deleted, float]]:
    """Return what a home has, and the seconds since the latest send."""
    consumers = yield ops.members(keys.consumers)
    there = yield from _count(keys, consumers, (yield from _read_names(keys.queue)))
    return there, (yield from _silent_for(keys))


def _delete(keys: QueueKeys, force: bool) -> Steps[Deleted]:
    """Delete one home. Raises QueueFull with what to do if Redis is full."""
    try:
        return (yield from _delete_if_there_is_room(keys, force))
    except QueueFull as full:
        unforced = "" if force else ", or use --force"
        full.args = (f"Redis is at its maxmemory: make room before you delete queue {keys.queue!r}{unforced}",)
        raise


def _delete_if_there_is_room(keys: QueueKeys, force: bool) -> Steps[Deleted]:
    for one in NOTES:
        if one.settle is not None:
            yield from one.settle(keys)
    for _ in range(_TRIES):
        consumers = yield ops.members(keys.consumers)
        names = yield from _read_names(keys.queue)
        noted = yield from _note_counts(keys)
        there = yield from _watch_and_count(keys, consumers, names)
        if not force:
            _check_unused(keys.logical, there, (yield from _silent_for(keys)))
        yield from _forget_lasting(keys)
        drop, unlist = ops.drop_queue(keys, consumers)
        if (yield from _drop_unless_changed(keys, drop, noted, force)):
            yield from _forget_names(keys.queue, names)
            yield unlist
            yield from _look_for_late_sends(keys)
            return there
    raise _changing(keys.logical)


def _look_for_late_sends(keys: QueueKeys) -> Steps[None]:
    """Look whether a message has come meanwhile; monitors look for some minutes more, if they can be told."""
    with suppress(*_REFUSED):
        yield ops.note_deleted(keys.queue, (yield ops.server_time()))
    yield from announce_if_used(keys)


def announce_if_used(keys: QueueKeys) -> Steps[None]:
    """Make a deleted queue known again if a message has come meanwhile, or since.

    A producer that has announced it shortly before does not do so again; monitors look later, too.
    """
    if (yield ops.exists(keys.producers)):
        yield ops.announce(keys.queue)


def _note_counts(keys: QueueKeys) -> Steps[dict[Counted, Any]]:
    """Note that the queue has counts which outlive it; return what each of COUNTED says."""
    noted = {}
    for one in COUNTED:
        noted[one] = yield from one.note(keys)
    return noted


def _drop_unless_changed(keys: QueueKeys, drop: ops.Op[int], noted: Mapping[Counted, Any], force: bool) -> Steps[bool]:
    """Delete what is watched; return False if it has changed.

    A full Redis refuses each transaction, but takes the deletion alone: with `force` it need not be one with a look.
    """
    stores: list[ops.Op[Any]] = []
    for one in COUNTED:
        kept = yield from one.kept(keys, noted[one])
        if kept is None:
            yield Transaction(())
            return False
        stores += kept
    try:
        return (yield Transaction((drop, *stores))) is not None
    except QueueFull:
        if stores or not force:
            raise
        yield drop
        return True


def _check_unused(queue: str, there: Deleted, silent: float) -> None:
    """Raise QueueInUse if the queue has messages or consumers, or a producer that would not announce it again."""
    if there.messages:
        raise QueueInUse(f"queue {queue!r} has messages ({there}): handle or purge them, or use --force")
    if there.consumers:
        raise QueueInUse(f"queue {queue!r} is in use ({there}): stop its workers, or use --force")
    if silent < ANNOUNCE_EVERY:
        raise QueueInUse(
            f"a producer has sent to queue {queue!r} {silent:.0f} s ago: wait until none has for "
            f"{ANNOUNCE_EVERY:.0f} s, or use --force"
        )


def _silent_for(keys: QueueKeys) -> Steps[float]:
    """Return the seconds since the latest send. A producer that has sent recently does not announce the queue again."""
    now, producers = yield [ops.server_time(), ops.read_hash(keys.producers)]
    latest = max((float(entry.split()[1]) for entry in producers.values()), default=-math.inf)
    return float(max(0.0, (now - latest) / 1000))


def _read_names(queue: str) -> Steps[_Names]:
    """Return what features note about the queue outside of it, of each of NOTES."""
    noted = (yield [one.read() for one in NOTES]) if NOTES else []
    return [[name for name, home in found.items() if home == queue] for found in noted]


def _watch_and_count(keys: QueueKeys, consumers: list[str], names: _Names) -> Steps[Deleted]:
    """Watch what the queue has, and count it."""
    watched = (
        keys.messages, keys.high, keys.low, keys.waiting, keys.next_round, keys.delayed, keys.dead, keys.prepared,
        keys.jobs, keys.followed, keys.parked, keys.consumers, *map(keys.processing, consumers),
    )  # fmt: skip
    yield Watch(watched)
    return (yield from _count(keys, consumers, names))


def _forget_lasting(keys: QueueKeys) -> Steps[None]:
    """Delete what would answer for messages that are gone, such as the windows of their deduplication keys.

    Comes before the transaction: what a send adds meanwhile makes that one fail.
    """
    cursor = 0
    while True:
        cursor, names = yield ops.scan_lasting(keys, cursor)
        if names:
            yield ops.unlink(names)
        if not cursor:
            return


def _count(keys: QueueKeys, consumers: list[str], names: _Names) -> Steps[Deleted]:
    counts, staged = yield [ops.stats(keys, consumers), ops.exists(keys.jobs)]
    noted = {one.name: len(found) for one, found in zip(NOTES, names, strict=True) if one.name}
    return Deleted(
        counts.ready, counts.processing, counts.delayed, counts.dead, counts.prepared, counts.parked,
        int(staged), len(consumers), **noted,
    )  # fmt: skip


def _forget_names(queue: str, names: _Names) -> Steps[None]:
    for one, found in zip(NOTES, names, strict=True):
        for some in pieces(found, _TOGETHER):
            yield one.forget(queue, some)
