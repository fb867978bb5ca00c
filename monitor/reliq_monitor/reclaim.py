"""Reclaim: take back what a vanished consumer held.

A transaction on watched keys: the messages leave the processing list and enter the ready list together, and only if
neither the list nor the lease has moved since they were read. Each goes back as a new element (another nonce), so the
compensation, for servers and proxies that do not honour WATCH, can remove nobody else's copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reliq import ops, settings
from reliq.errors import QueueFull
from reliq.keys import QueueKeys, belongs_to
from reliq.message import Message, Undecodable, undecodable_letter
from reliq.ops import Op, Return, Steps, Transaction, Watch

BATCH = 100  #: messages in one transaction


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What one look at a consumer did. `moved`: it was alive after all, look again at the next scan."""

    returned: int = 0
    died: int = 0
    conflicts: int = 0
    moved: bool = False
    emptied: bool = False  #: nothing is left in its list


def reclaim(keys: QueueKeys, consumer: str, max_deliveries: int, known_dead: bool = False) -> Steps[Reclaimed]:
    """Return one batch from the tail of the consumer's list.

    `known_dead`: its process is known to be gone (its connection closed, its parent saw it die), so that its lease
    need not run out first.
    """
    processing, lease = keys.processing(consumer), keys.lease(consumer)
    yield Watch((processing, lease))
    deadline, now, elements, length, *kinds = yield [
        ops.command("GET", lease),
        ops.server_time(),
        ops.command("LRANGE", processing, -BATCH, -1),
        ops.command("LLEN", processing),
        *map(ops.type_of, keys.kinds),
    ]
    if not known_dead and deadline is not None and int(deadline) > now:
        yield Transaction(())
        return Reclaimed(moved=True)
    if not elements:
        yield Transaction(())
        return Reclaimed(emptied=True)
    returns = judge(keys.queue, elements, max_deliveries, alone=length == 1)
    _check_types(keys, kinds, returns)
    try:
        replies = yield Transaction(_transaction(keys, consumer, returns, now))
    except QueueFull:
        # Over maxmemory a MULTI with an LPUSH is refused whole. The script removes first, and passes.
        seen = deadline.decode() if deadline else ""
        taken = yield ops.reclaim_when_full(keys, consumer, seen, returns)
        if taken < 0:
            return Reclaimed(moved=True)
        # What was gone by then (fewer taken) is left for the next look.
        return _counted(returns, set(), length) if taken == len(returns) else Reclaimed(returned=taken)
    if replies is None:
        return Reclaimed(moved=True)
    conflicts = {place for place in range(len(returns)) if replies[2 * place] == 0}
    if conflicts:
        yield Transaction(_compensation(keys, consumer, [returns[place] for place in sorted(conflicts)]))
    return _counted(returns, conflicts, length)


def judge(queue: str, elements: list[bytes], max_deliveries: int, alone: bool) -> list[Return]:
    """What becomes of each message of a dead consumer, oldest first; `elements` newest first, as LRANGE answers them.

    Charged with a delivery is only the one that can have been running: the oldest redelivered one (a worker runs one
    of those at a time, and settles it before the next), or the message that was alone. Its neighbours never.
    """
    returns: list[Return] = []
    suspect_found = False
    for element in reversed(elements):
        try:
            message = Message.decode(queue, element)
        except Undecodable:
            identity, again = undecodable_letter(element)
            returns.append(Return(element, "dead:decode", identity, again))
            continue
        charged = alone or (message.redelivered and not suspect_found)
        suspect_found = suspect_found or message.redelivered
        deliveries = min(message.deliveries + charged, settings.COUNT_LARGEST)
        if charged and deliveries >= max_deliveries:
            again = message.buried("max_deliveries", deliveries)
            returns.append(Return(element, "dead:max_deliveries", message.id, again, message.group))
        else:
            again = message.again(redelivered=True, deliveries=deliveries)
            returns.append(Return(element, "reclaimed", message.id, again))
    return returns


def _check_types(keys: QueueKeys, kinds: Sequence[str], returns: list[Return]) -> None:
    """Raise ForeignKey where a push of the transaction would fail: its removals would still be carried out."""
    dying = any(one.counter != "reclaimed" for one in returns)
    for (key, expected), kind in zip(keys.kinds.items(), kinds, strict=True):
        if dying or key in (keys.messages, keys.counters):
            ops.check_type(key, kind, expected)


def _transaction(keys: QueueKeys, consumer: str, returns: list[Return], now: int) -> tuple[Op[int], ...]:
    """Two commands a message, LREM and where it goes; then the counters, and the end of the lease."""
    commands: list[Op[int]] = []
    for one in returns:
        commands.append(ops.command("LREM", keys.processing(consumer), -1, one.element))
        if one.counter == "reclaimed":
            commands.append(ops.command("LPUSH", keys.messages, one.again))
        else:
            commands.append(ops.command("ZADD", keys.dead, now, one.again))
    commands += _counts(keys, returns, 1)
    for one in returns:
        if one.counter != "reclaimed":
            commands.append(ops.command("HSET", keys.index, one.id, now))
        if one.group or one.counter == "dead:decode":  # a script may have read a key in what does not decode
            commands.append(ops.advance_within(keys, one.element))
    commands.append(ops.command("DEL", keys.lease(consumer)))
    return tuple(commands)


def _compensation(keys: QueueKeys, consumer: str, conflicts: list[Return]) -> tuple[Op[int], ...]:
    """The worker settled these between our look and our transaction: take our copies back, and count it."""
    commands: list[Op[int]] = []
    for one in conflicts:
        if one.counter == "reclaimed":
            commands.append(ops.command("LREM", keys.messages, 1, one.again))
        else:
            commands.append(ops.command("ZREM", keys.dead, one.again))
            commands.append(ops.command("HDEL", keys.index, one.id))
        commands.append(ops.command("LREM", keys.processing(consumer), 1, one.element))
    commands += _counts(keys, conflicts, -1)
    commands.append(ops.command("HINCRBY", keys.counters, "reclaim_conflicts", len(conflicts)))
    return tuple(commands)


def _counts(keys: QueueKeys, returns: list[Return], sign: int) -> list[Op[int]]:
    counts: dict[str, int] = {}
    for one in returns:
        counts[one.counter] = counts.get(one.counter, 0) + sign
        if one.counter != "reclaimed":
            counts["dead_lettered"] = counts.get("dead_lettered", 0) + sign
    return [ops.command("HINCRBY", keys.counters, name, count) for name, count in counts.items()]


def _counted(returns: list[Return], conflicts: set[int], length: int) -> Reclaimed:
    kept = [one for place, one in enumerate(returns) if place not in conflicts]
    returned = sum(one.counter == "reclaimed" for one in kept)
    return Reclaimed(returned, len(kept) - returned, len(conflicts), emptied=length <= len(returns))


def take_back(keys: QueueKeys, consumer: str, known_dead: bool = False) -> Steps[Reclaimed]:
    """Return everything that a consumer held, batch by batch, and forget the consumer."""
    configured = yield ops.command("HGET", keys.config, "max_deliveries")
    max_deliveries = int(configured) if configured and configured.isdigit() else settings.MAX_DELIVERIES
    total = Reclaimed()
    while True:
        batch = yield from reclaim(keys, consumer, max_deliveries, known_dead)
        total = Reclaimed(
            total.returned + batch.returned,
            total.died + batch.died,
            total.conflicts + batch.conflicts,
            batch.moved,
            batch.emptied,
        )
        if batch.moved:
            return total
        if batch.emptied:
            yield ops.forget(keys, consumer, leaving=known_dead)
            return total


def take_back_owner(owner: str) -> Steps[dict[str, int]]:
    """Return everything that a process held. For its parent, which saw it die; answers how many by queue."""
    every = [QueueKeys(queue) for queue in (yield ops.queue_names())]
    if not every:
        return {}
    members = yield [ops.members(keys.consumers) for keys in every]
    returned: dict[str, int] = {}
    for keys, consumers in zip(every, members, strict=True):
        for consumer in consumers:
            if belongs_to(consumer, owner):
                result = yield from take_back(keys, consumer, known_dead=True)
                returned[keys.queue] = returned.get(keys.queue, 0) + result.returned + result.died
    return returned
