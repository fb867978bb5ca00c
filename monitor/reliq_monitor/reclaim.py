"""Reclaim: take back the messages of a vanished consumer.

A transaction on watched keys: the messages leave the processing list and enter the ready list together, and only if
neither the list nor the lease has changed since they were read. Each goes back as a new element (with another nonce),
so the compensation, for servers and proxies that ignore WATCH, cannot remove another consumer's copy.
"""

import contextlib
import logging
import math
import time
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reliq import ops
from reliq.contract import values
from reliq.errors import QueueFull, RedisUnsuitable, ReliqError
from reliq.model.dead_letter import letter_field
from reliq.model.element import BLANK, Undecodable
from reliq.model.keys import QueueKeys, belongs_to, process_of
from reliq.model.message import Message, undecodable_letter
from reliq.ops import Fate, Op, Return, Steps, Transaction, Watch
from reliq.ops.schema import Counter
from reliq.protocol.features import TAGS
from reliq.protocol.oversized import fitting
from reliq.runtime.failures import FailureLog
from reliq_monitor import marks
from reliq_monitor.leases import Leases

BATCH = 100  #: messages in one transaction
deaths = FailureLog(log=logging.getLogger("reliq.monitor"))

Holders = Sequence[tuple[QueueKeys, str]]  #: consumers of one process, each with its queue
_BATCH_BYTES = 64 * 1024 * 1024  #: the most bytes in one transaction, as estimated by Redis


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The result of one step for a consumer. `moved`: it was alive after all; look again at the next scan."""

    returned: int = 0
    died: int = 0
    conflicts: int = 0
    moved: bool = False
    emptied: bool = False  #: whether its list is empty now

    @property
    def unfinished(self) -> bool:
        """Whether the time was over before the list was empty."""
        return bool(self.returned or self.died) and not (self.moved or self.emptied)


@dataclass(frozen=True, slots=True)
class _Look:
    """The state of a consumer before the monitor acts."""

    deadline: bytes | None
    now: int
    elements: list[bytes]  #: a batch from the tail, newest first
    length: int  #: of the whole list
    mark: bytes | None
    follows: bool  #: whether the queue follows its messages
    kinds: Sequence[str]

    @property
    def alone(self) -> bool:
        """Whether its process held only this message, so that this message must have been running."""
        return self.length == 1 and marks.may_be_alone(self.mark)


def reclaim(keys: QueueKeys, consumer: str, max_deliveries: int, known_dead: bool, at_once: int) -> Steps[Reclaimed]:
    """Return one batch from the tail of the consumer's list.

    `known_dead`: its process is known to be gone (its connection closed, its parent saw it die), so that its lease
    need not run out first.
    """
    yield Watch((keys.processing(consumer), keys.lease(consumer)))
    try:
        look = yield from _look(keys, consumer, at_once)
        alive = not known_dead and look.deadline is not None and int(look.deadline) > look.now
        returns, decided = ([], False) if alive else (yield from _returns(keys, look, max_deliveries))
        if returns:
            _check_types(keys, look.kinds, returns)
    except (ReliqError, ValueError):
        yield Transaction(())  # the connection is used for other consumers next
        raise
    if not returns:
        yield Transaction(())
        return Reclaimed(moved=alive, emptied=not alive)
    return (yield from _move(keys, consumer, look, returns, decided))


def _returns(keys: QueueKeys, look: _Look, max_deliveries: int) -> Steps[tuple[list[Return], bool]]:
    """Return the fate of each message, and whether it is decided which one is charged.

    A message whose handler has reported progress since its delivery is no poison, and is not charged.
    """
    returns = charge_deliveries(keys.queue, look.elements, max_deliveries, look.alone, look.mark)
    charged = next((one for one in returns if one.charged), None)
    if charged is not None:
        message = Message.decode(keys.queue, charged.element)
        if message.tag in (yield [ops.reported_tag(keys, message.id), *(tag(keys, message.id) for tag in TAGS)]):
            returns = charge_deliveries(keys.queue, look.elements, max_deliveries, look.alone, marks.DECIDED)
    return [*(yield from fitting(returns, _as_it_is))], charged is not None


def _as_it_is(one: Return) -> Return:
    """Return the fate of a message that Redis would refuse with its changes: it becomes a dead letter as it is."""
    return replace(one, fate=Fate.UNREADABLE, again=one.element)


def _look(keys: QueueKeys, consumer: str, at_once: int) -> Steps[_Look]:
    processing = keys.processing(consumer)
    deadline, now, elements, length, mark, follows, *kinds = yield [
        ops.lease_text(keys, consumer),
        ops.server_time(),
        ops.from_tail(processing, 0, at_once),
        ops.held_count(keys, consumer),
        ops.mark_of(keys, consumer),
        ops.follows(keys),
        *map(ops.type_of, keys.kinds),
    ]
    return _Look(deadline, now, elements, length, mark, follows, kinds)


def _move(keys: QueueKeys, consumer: str, look: _Look, returns: list[Return], decided: bool) -> Steps[Reclaimed]:
    """Move the messages, and compensate what the worker did meanwhile; `decided`: no further one may be charged."""
    emptied = look.length <= len(returns)
    mark = None if emptied else marks.after_batch(look.mark, charged=decided)
    try:
        replies = yield Transaction(_transaction(keys, consumer, returns, look, mark))
    except QueueFull:
        # Over maxmemory, a MULTI with an LPUSH is refused as a whole. The script removes first and is accepted.
        seen = look.deadline.decode() if look.deadline else ""
        taken = yield ops.reclaim_when_full(keys, consumer, seen, returns)
        if taken < 0:
            return Reclaimed(moved=True)
        # If fewer were taken because some were gone, the rest waits for the next look.
        return _counted(keys, returns, set(), emptied) if taken == len(returns) else Reclaimed(returned=taken)
    if replies is None:
        return Reclaimed(moved=True)
    conflicts = {place for place in range(len(returns)) if replies[2 * place] == 0}
    if conflicts:
        yield Transaction(_compensation(keys, consumer, [returns[place] for place in sorted(conflicts)]))
    return _counted(keys, returns, conflicts, emptied)


def charge_deliveries(
    queue: str, elements: list[bytes], max_deliveries: int, alone: bool, mark: bytes | None
) -> list[Return]:
    """Return the fate of each message of a dead consumer, oldest first; `elements`: newest first, as from LRANGE.

    Charged with a delivery is only the one that can have been running: the one that the consumer marked; without marks
    the oldest redelivered one (such a consumer runs one of those at a time, and settles it before the next); or the
    message that was alone. Its neighbours never. Where several ran at a time, none, and fewer may from then on.
    """
    returns: list[Return] = []
    charge = marks.Charge(mark, alone)
    for element in reversed(elements):
        try:
            message = Message.decode(queue, element)
        except Undecodable:
            if element == BLANK:  # the monitor's transaction has no deletion: the next consumer passes over it
                returns.append(Return(element, Fate.BLANK, "", element))
                continue
            identity, again = undecodable_letter(element)
            returns.append(Return(element, Fate.UNREADABLE, identity, again))
            continue
        charged = charge.falls_on(message)
        deliveries = min(message.deliveries + charged, values.MAX_COUNT)
        if charged and deliveries >= max_deliveries:
            again = message.buried("max_deliveries", deliveries)
            returns.append(Return(element, Fate.EXHAUSTED, message.id, again, message.group, charged))
        else:
            again = message.returned(deliveries, marks.halved(mark))
            returns.append(Return(element, Fate.READY, message.id, again, charged=charged))
    return returns


def _check_types(keys: QueueKeys, kinds: Sequence[str], returns: list[Return]) -> None:
    """Raise ForeignKey if a push of the transaction would fail, because its removals would still be carried out."""
    dying = any(one.fate.dead for one in returns)
    for (key, expected), kind in zip(keys.kinds.items(), kinds, strict=True):
        if dying or key in (keys.messages, keys.counters):
            ops.check_type(key, kind, expected)


def _transaction(
    keys: QueueKeys, consumer: str, returns: list[Return], look: _Look, mark: bytes | None
) -> tuple[Op[int], ...]:
    """Return two commands per message, LREM and its push; then the counters, the end of the lease, and what it holds.

    `mark`: which of the remaining messages may be charged.
    """
    commands: list[Op[int]] = []
    for one in returns:
        commands.append(ops.command("LREM", keys.processing(consumer), -1, one.element))
        if one.fate.dead:
            commands.append(ops.command("ZADD", keys.dead, look.now, one.again))
        else:
            commands.append(ops.command("LPUSH", keys.messages, one.again))
    commands += _counts(keys, returns, 1)
    for one in returns:
        if one.fate.dead:
            commands.append(ops.command("HSET", keys.index, letter_field(one.id), look.now))
        unreadable = one.fate is Fate.UNREADABLE  # a script may have read a key in it
        if one.group or unreadable or (look.follows and one.fate is not Fate.BLANK):
            commands.append(ops.advance_within(keys, one.element, one.fate))
    commands += [ops.end(keys, consumer), ops.tally_within(keys, consumer)]
    if mark is not None:
        commands.append(ops.set_mark(keys, consumer, mark))
    return tuple(commands)


def _compensation(keys: QueueKeys, consumer: str, conflicts: list[Return]) -> tuple[Op[int], ...]:
    """Return the ops that remove and count the copies of messages that the worker settled before the transaction."""
    commands: list[Op[int]] = []
    for one in conflicts:
        if one.fate.dead:
            commands.append(ops.command("ZREM", keys.dead, one.again))
            commands.append(ops.command("HDEL", keys.index, letter_field(one.id)))
        else:
            commands.append(ops.command("LREM", keys.messages, 1, one.again))
        commands.append(ops.command("LREM", keys.processing(consumer), 1, one.element))
    commands += [*_counts(keys, conflicts, -1), ops.tally_within(keys, consumer)]
    commands.append(ops.command("HINCRBY", keys.counters, Counter.RECLAIM_CONFLICTS, len(conflicts)))
    return tuple(commands)


def _counts(keys: QueueKeys, returns: list[Return], sign: int) -> list[Op[int]]:
    counts = Tally(counter for one in returns for counter in one.fate.counters)
    return [ops.count(keys, counter, sign * count) for counter, count in counts.items()]


def _counted(keys: QueueKeys, returns: list[Return], conflicts: set[int], emptied: bool) -> Reclaimed:
    kept = [one for place, one in enumerate(returns) if place not in conflicts]
    for one in kept:
        if one.fate.dead:
            deaths.died(keys.queue, one.again)
    returned = sum(not one.fate.dead for one in kept)
    return Reclaimed(returned, len(kept) - returned, len(conflicts), emptied=emptied)


def take_back(keys: QueueKeys, consumer: str, known_dead: bool = False, until: float = math.inf) -> Steps[Reclaimed]:
    """Return all messages of a consumer to the queue, batch by batch, and forget the consumer.

    After `until`, by time.monotonic(), begins no further batch.
    """
    max_deliveries, at_once = yield from _terms(keys, consumer)
    total = Reclaimed()
    while True:
        batch = yield from reclaim(keys, consumer, max_deliveries, known_dead, at_once)
        returned, died = total.returned + batch.returned, total.died + batch.died
        total = replace(batch, returned=returned, died=died, conflicts=total.conflicts + batch.conflicts)
        if batch.moved:
            return total
        if batch.emptied:
            yield ops.forget(keys, consumer, leaving=known_dead)
            return total
        if time.monotonic() >= until:
            return total


def _terms(keys: QueueKeys, consumer: str) -> Steps[tuple[int, int]]:
    """Return the deliveries of the queue's policy, and how many messages of the list's average fit one transaction."""
    configured, held = ops.max_deliveries(keys), ops.held_count(keys, consumer)
    try:
        deliveries, length, used = yield [configured, held, ops.bytes_used(keys.processing(consumer))]
    except ReliqError:  # not every server has MEMORY USAGE; other errors show at the next call
        deliveries, length, used = (yield configured), 0, 0
    fitting = max(1, min(BATCH, _BATCH_BYTES * length // used)) if used else BATCH
    return deliveries or values.MAX_DELIVERIES, fitting


def holders_by_process(
    looked: Iterable[tuple[QueueKeys, Leases]], gone: Iterable[tuple[str, str]]
) -> dict[str, Holders]:
    """Return, for each process with a consumer among `gone` (queue, consumer), its consumers in all queues."""
    found: dict[str, list[tuple[QueueKeys, str]]] = {process_of(consumer): [] for _, consumer in gone}
    for keys, leases in looked if found else ():
        for consumer, _ in leases:
            if (process := process_of(consumer)) in found:
                found[process].append((keys, consumer))
    return dict(found)


def note_not_alone(holders: Holders, all_known: bool = True) -> Steps[None]:
    """Note, before messages of a process are taken back, if several of its lists hold some: none was alone then.

    Without `all_known` it may have more lists than these. The note is in Redis, so that it holds when one list is empty
    and another monitor looks at the next one.
    """
    lengths = yield [ops.held_count(keys, consumer) for keys, consumer in holders]
    holding = [one for one, length in zip(holders, lengths, strict=True) if length]
    if not holding or (all_known and len(holding) < 2):
        return
    known = yield [ops.mark_of(keys, consumer) for keys, consumer in holding]
    try:
        yield [
            ops.set_mark(keys, consumer, marks.after_batch(mark, charged=False))
            for (keys, consumer), mark in zip(holding, known, strict=True)
        ]
    except QueueFull:  # a full Redis refuses the note; its messages must come back nevertheless
        return


def take_back_owner(owner: str) -> Steps[dict[str, int]]:
    """Return all messages of a dead process to their queues; for its parent. Return how many by queue.

    A failing queue does not hold up the others; its error is raised at the end, and the monitor tries again.
    """
    every = [QueueKeys(queue) for queue in (yield ops.queue_names())]
    if not every:
        return {}
    members = yield [ops.members(keys.consumers) for keys in every]
    holders = [
        (keys, consumer)
        for keys, consumers in zip(every, members, strict=True)
        for consumer in consumers
        if belongs_to(consumer, owner)
    ]
    if not holders:
        return {}
    with contextlib.suppress(RedisUnsuitable):  # a key of a foreign type, which shows below
        yield from note_not_alone(holders)
    returned: dict[str, int] = {}
    failure: ReliqError | None = None
    for keys, consumer in holders:
        try:
            result = yield from take_back(keys, consumer, known_dead=True)
        except ReliqError as error:
            failure = failure or error
        else:
            returned[keys.queue] = returned.get(keys.queue, 0) + result.returned + result.died
    if failure is not None:
        raise failure
    return returned
