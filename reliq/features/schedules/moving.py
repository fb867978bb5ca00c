"""The steps that give a schedule to a queue, also to another one than the one that has it.

The two queues and the index are in three slots, which no step changes at once. The order of the writes makes a move
safe: the new queue gets the schedule, on its way (`State.source`: it does not tick); the index names the new queue;
the old queue loses it, if it still is what the new one was told; it ticks in the new one. So at each moment at most
one queue sends ticks. Who finds a schedule on its way, after a death in between, ends the move: the next call, or a
monitor. What a mover leaves before the index has learned of it does nothing. Each write compares, that of the index
too: of several processes with other plans one has its way. A new schedule comes in the same way, from its own queue.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress

import msgspec

from reliq import ops
from reliq.errors import InvalidSetting, OutcomeUnknown
from reliq.features.schedules import ops as own
from reliq.features.schedules.locating import by_queue, read_stored
from reliq.features.schedules.model import Definition, State, ticks_now
from reliq.features.schedules.ops import Owned, Removal, Stored, Written, encode
from reliq.model.keys import QueueKeys
from reliq.ops import Steps

MOVE_TAKES = 10_000  #: ms, at most: then a monitor ends the move of a process that has died
TRIES = 20  #: of a change, while other processes change the same schedule

Change = Callable[[str, Stored | None, int], Written | None]


def take_over(definition: Definition, owner: str) -> Steps[bool]:
    """Move a schedule from the queue that has it; False if another process has changed something meanwhile."""
    name, keys = definition.name, QueueKeys(definition.queue)
    there = (yield from read_stored(keys, [name])).get(name)  # first: what is done to the old one later shows here
    old = (yield from read_settled(QueueKeys(owner), [name])).get(name)
    now = yield ops.server_time()
    state = _on_its_way(definition, old, now, owner)
    held = Stored(definition, state, encode(state))
    coming = Written(name, there.raw_state if there else b"", state, definition, now + MOVE_TAKES)
    if not all((yield own.schedule_put(keys, [coming]))):
        return False
    if Owned.OTHER in (yield own.index_schedules([(name, owner, keys.queue)])):
        yield own.schedule_remove(keys, name, expected=held.raw_state)
        return False
    yield from _end(keys, held)
    return True


def begin(of: Mapping[str, str], new: Container[str], written: Mapping[str, Written]) -> Steps[None]:
    """Let schedules tick that were added to their queues, `of`, as far as the index has them there.

    `new`: it had none of them.
    """
    coming = {name: one.state for name, one in written.items() if one.state.source}
    asked = [name for name in of if name in new or name in coming]
    changes = [(name, "" if name in new else of[name], of[name]) for name in asked]
    answers = (yield own.index_schedules(changes)) if changes else ()
    others = {name for name, answer in zip(asked, answers, strict=True) if answer is Owned.OTHER}
    for keys, names in by_queue({name: of[name] for name in coming}):
        here = [_arrived(name, encode(coming[name]), coming[name]) for name in names if name not in others]
        if here:
            yield own.schedule_put(keys, here)
        for name in others.intersection(names):  # another process has moved it meanwhile, or has removed it
            yield own.schedule_remove(keys, name, expected=encode(coming[name]))


def read_settled(keys: QueueKeys, names: Sequence[str]) -> Steps[dict[str, Stored]]:
    """Read schedules of a queue, having ended their moves to it.

    One that is on its way all the same is left of a move that the index has never learned of: it counts for nothing.
    """
    for _ in range(TRIES):
        stored = yield from read_stored(keys, names)
        moving = [name for name, one in stored.items() if one.state.source]
        owners = (yield own.queues_of_schedules(moving)) if moving else []
        coming = [stored[name] for name, owner in zip(moving, owners, strict=True) if owner == keys.queue]
        if not coming:
            return stored
        for one in coming:
            yield from _end(keys, one)
    raise OutcomeUnknown(f"schedule {coming[0].definition.name!r} is moved all the time; try again")


def end_moves(keys: QueueKeys) -> Steps[None]:
    """End the moves of the schedules of a queue that is deleted: to it, and from there to others.

    Else the queue from which one comes would have it still, and tick, though it is listed nowhere.
    """
    moving = yield own.moving_schedules(keys)
    owners = (yield own.queues_of_schedules(moving)) if moving else []
    for name, owner in zip(moving, owners, strict=True):
        if owner is not None:
            with suppress(InvalidSetting):  # what nobody can read does not tick
                yield from read_settled(QueueKeys(owner), [name])


def _end(keys: QueueKeys, one: Stored, later: Sequence[str] = ()) -> Steps[None]:
    """Take a schedule that is on its way from its former queue, and let it tick; nothing if something has changed.

    `later`: the queues to which it goes on from here.
    """
    name, source, state = one.definition.name, QueueKeys(one.state.source), one.state
    if source.queue == keys.queue:
        yield own.schedule_put(keys, [_arrived(name, one.raw_state, state)])
        return
    old = (yield from read_stored(source, [name])).get(name)
    if old is not None and old.state.source and old.state.source not in (source.queue, keys.queue, *later):
        yield from _end(source, old, [keys.queue, *later])
        return
    if old is not None:  # it has ticked since, or was paused
        now = yield ops.server_time()
        state = _on_its_way(one.definition, old, now, source.queue)
        again = Written(name, one.raw_state, state, look_at=now + MOVE_TAKES)
        if state != one.state and not all((yield own.schedule_put(keys, [again]))):
            return
    removal = yield own.schedule_remove(source, name, expected=old.raw_state if old else b"")
    if removal is not Removal.CHANGED:
        raw = one.raw_state if state == one.state else encode(state)
        yield own.schedule_put(keys, [_arrived(name, raw, state)])


def _arrived(name: str, raw: bytes, state: State) -> Written:
    """Return a schedule that was on its way, as it ticks from now on."""
    return Written(name, raw, msgspec.structs.replace(state, source=""))


def _on_its_way(definition: Definition, old: Stored | None, now: int, source: str) -> State:
    """Return the state of a schedule that its former queue, `source`, has as `old`; what is overdue is missed."""
    if old is None:
        state = State.at(definition, definition.next_tick(now))
    else:
        before = without_overdue(old, now)
        stays = before is old.state and old.definition.timing == definition.timing
        state = State.at(definition, before.tick if stays else definition.next_tick(now), before)
    return msgspec.structs.replace(state, source=source)


def defined(definition: Definition, old: Stored | None, now: int) -> Written | None:
    """Return the schedule with a new definition; None if it has it already."""
    if old is None or old.state.source:
        state = _on_its_way(definition, None, now, definition.queue)
        return Written(definition.name, old.raw_state if old else b"", state, definition, now + MOVE_TAKES)
    if old.definition == definition:
        return None
    if old.definition.timing == definition.timing:
        state = State.at(definition, old.state.tick, old.state)
    else:
        state = State.at(definition, definition.next_tick(now), without_overdue(old, now))
    return Written(definition.name, old.raw_state, state, definition)


def without_overdue(old: Stored, now: int) -> State:
    """Return the state of a schedule that sends no tick of those that are overdue: they are missed."""
    state = old.state
    if state.tick is None or state.wakes is None or state.wakes > now:
        return state
    overdue = ticks_now(old.definition, state.tick, now)
    return msgspec.structs.replace(state, missed=state.missed + len(overdue.send) + overdue.missed)


def unmet(definitions: Sequence[Definition]) -> Steps[Sequence[Definition]]:
    """Return those that their queues do not have: removed, moved, or lost by a restart of Redis from an older state."""
    owners = yield own.queues_of_schedules([one.name for one in definitions])
    there: dict[str, Stored] = {}
    rightly = {one.name: one.queue for one, of in zip(definitions, owners, strict=True) if of == one.queue}
    for keys, names in by_queue(rightly):
        there |= yield from read_stored(keys, names)
    return [one for one in definitions if one.name not in there]
