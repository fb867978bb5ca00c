"""The steps of schedules: define, list, pause, run by hand. The monitor sends the ticks (duty.py).

A schedule lies in the hash slot of its queue, so that a tick and its message are one atomic step. `reliq:schedules`, in
another slot, tells which queue has a name. It is a hint: what is listed there is verified.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from reliq import ops
from reliq.contract import values
from reliq.contract.values import Duration, whole
from reliq.errors import InvalidSetting, OutcomeUnknown
from reliq.features.schedules import ops as own
from reliq.features.schedules.locating import Schedule, by_queue, no_schedule, places_of, schedules_in
from reliq.features.schedules.model import Definition, Run, ScheduleOptions, State, check_schedule_name, define
from reliq.features.schedules.moving import (
    TRIES,
    Change,
    begin,
    defined,
    end_moves,
    read_settled,
    take_over,
    unmet,
    without_overdue,
)
from reliq.features.schedules.ops import Owned, Removal, Stored, Written
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import Body
from reliq.model.upgrades import VERSION_HEADER
from reliq.ops import Steps
from reliq.protocol.features import Notes
from reliq.protocol.queue import QueueSteps
from reliq.runtime.pieces import pieces

_PAGE = 250  #: schedules in one call: so many take Redis about two milliseconds
_PAGES = 100  #: reads of a queue's schedules in one round trip
_MOST_PREVIEWED = 1000
_MOST_READ = 1000  #: messages of each list, to find one

Check = Callable[[str], object]


def stamped(definition: Definition, version: int) -> Definition:
    """Return the definition with the version of its body in its headers, unless they have one."""
    if version == 1 or VERSION_HEADER in definition.headers:
        return definition
    return msgspec.structs.replace(definition, headers={**definition.headers, VERSION_HEADER: str(version)})


class ScheduleSteps:
    """The operations on schedules, as steps."""

    def __init__(
        self, queue: Callable[[str], QueueSteps], max_body: int = values.BODY_LIMIT, check: Check | None = None
    ) -> None:
        self._queue = queue
        self._max_body = max_body
        self._check: Check = check or _refuse_none

    def define(self, name: str, when: Duration, queue: str, body: Body, options: ScheduleOptions) -> Definition:
        """Return a checked definition; raises InvalidName, InvalidSetting or InvalidMessage."""
        definition = define(name, when, queue, body, options, self._max_body)
        return stamped(definition, self._queue(queue).version)

    def checked(self, check: Check) -> "ScheduleSteps":
        """Return the same, limited: `check` gets the queue that has a schedule, and raises to refuse."""
        return ScheduleSteps(self._queue, self._max_body, check)

    def put(self, definitions: Sequence[Definition]) -> Steps[int]:
        """Add schedules, and change those that have another definition; return how many were added or changed.

        A schedule with the same definition keeps its next tick, even if that is overdue.
        """
        changed = set[str]()
        for page in pieces(definitions, _PAGE):
            for _ in range(TRIES):
                changed |= {*(yield from self._put(page))}
                if not (page := (yield from unmet(page))):
                    break
            else:
                raise OutcomeUnknown(f"schedule {page[0].name!r} is removed or moved each time it is added; try again")
        return len(changed)

    def _put(self, definitions: Sequence[Definition]) -> Steps[Sequence[str]]:
        """Store definitions once, except those that another call moves meanwhile; return the names of changed ones."""
        by_name = {one.name: one for one in definitions}
        owners = dict(zip(by_name, (yield own.queues_of_schedules(list(by_name))), strict=True))
        for owner in owners.values():
            if owner is not None:
                self._check(owner)
        yield [ops.announce(queue) for queue in sorted({one.queue for one in by_name.values()})]
        moved: list[str] = []
        for name, owner in owners.items():
            if owner is not None and owner != by_name[name].queue and (yield from take_over(by_name[name], owner)):
                moved.append(name)
        here = [one for one in by_name.values() if one.name in moved or owners[one.name] in (None, one.queue)]
        of = {one.name: one.queue for one in here}
        written: dict[str, Written] = {}
        for keys, names in by_queue(of):
            some = yield from self._change(keys, names, lambda name, old, now: defined(by_name[name], old, now))
            written |= {one.name: one for one in some}
        yield from begin(of, {name for name in of if owners[name] is None}, written)
        return [*moved, *written]

    def pause(self, name: str) -> Steps[None]:
        """Send no tick until `resume`. Raises InvalidName if there is no such schedule."""
        keys = yield from self._home(name)
        yield from self._change(keys, [name], _paused)

    def resume(self, name: str) -> Steps[None]:
        """End a pause: the next tick is the first one from now on."""
        keys = yield from self._home(name)
        yield from self._change(keys, [name], _resumed)

    def remove(self, name: str) -> Steps[bool]:
        """Remove a schedule; return whether there was one."""
        removed = False
        for _ in range(TRIES):
            (owner,) = yield own.queues_of_schedules([check_schedule_name(name)])
            if owner is None:
                return removed
            self._check(owner)
            for keys in (yield from places_of(QueueKeys(owner), name)):
                removed |= (yield own.schedule_remove(keys, name, keys.new_call())) is Removal.REMOVED
            if Owned.OTHER not in (yield own.index_schedules([(name, owner, "")])):
                yield own.schedule_remove(QueueKeys(owner), name)  # what was added before the index had lost the name
                return removed
        raise OutcomeUnknown(f"schedule {name!r} is moved each time it is removed; try again")

    def run(self, name: str) -> Steps[str]:
        """Send the message of a schedule now, beside its ticks; return the id. Raises as a send."""
        schedule = yield from self.get(name)
        definition, now = schedule.definition, (yield ops.server_time())
        identity = f"{definition.message_id(now // 1000 * 1000)}-{secrets.token_hex(3)}"  # not that of a tick
        (sent,) = yield from self._queue(definition.queue).send_many([definition.message(identity)])
        run = Run(now, now, sent, 1, by_hand=True, at=now)
        yield own.schedule_ran(QueueKeys(definition.queue), name, run)
        return sent

    def get(self, name: str) -> Steps[Schedule]:
        """Return a schedule; raises InvalidName if there is none."""
        keys = yield from self._home(name)
        (definition,), (state,), (run,) = yield [*own.stored_schedules(keys, [name]), own.latest_runs(keys, [name])]
        found = schedules_in(name, definition, state, run)
        if not found:
            raise no_schedule(name)
        return found[0]

    def list(self, queue: str | None = None) -> Steps[Sequence[Schedule]]:
        """Return all schedules that can be read, or those of one queue, sorted by name."""
        found, _ = yield from self.readable(queue)
        return found

    def readable(self, queue: str | None = None) -> Steps[tuple[Sequence[Schedule], dict[str, str]]]:
        """Return all schedules, sorted by name, and for each that cannot be read why: it must not hide the others."""
        index = yield own.schedule_names()
        found: list[Schedule] = []
        unreadable: dict[str, str] = {}
        of_queues = by_queue({name: of for name, of in index.items() if queue in (None, of)})
        every = [(keys, page) for keys, names in of_queues for page in pieces(names, _PAGE)]
        for pages in pieces(every, _PAGES):
            for row in (yield from _rows(pages)):
                try:
                    found.extend(schedules_in(*row))
                except InvalidSetting as error:
                    unreadable[row[0]] = str(error)
        return sorted(found, key=lambda one: one.name), unreadable

    def fates(self, schedules: Sequence[Schedule]) -> Steps[dict[str, str]]:
        """Return for each schedule, by name, where the message of its latest run is: one of FATES, "" without one.

        "gone": handled, or removed by hand. "unknown": not among the newest 1,000 messages of a long list.
        """
        fates = {one.name: "" for one in schedules}
        latest = {one.name: one.last_id for one in schedules}
        for keys, names in by_queue({one.name: one.queue for one in schedules if one.last_id}):
            ids = [latest[name] for name in names]
            homes = self._queue(keys.queue).homes
            found = yield from homes.any_of(partial(_fates_in, ids=ids), own.FOUND.issuperset)
            best = (min(some, key=own.FATES.index) for some in zip(*found, strict=True))
            fates |= zip(names, best, strict=True)
        return fates

    def preview(self, name: str, count: int = 10) -> Steps[Sequence[datetime]]:
        """Return the next ticks of a schedule, at most `count`, in its time zone; none while it is paused."""
        whole(count, "count", 1, _MOST_PREVIEWED)
        return (yield from self.get(name)).following(count)

    def _home(self, name: str) -> Steps[QueueKeys]:
        (owner,) = yield own.queues_of_schedules([check_schedule_name(name)])
        if owner is None:
            raise no_schedule(name)
        self._check(owner)
        return QueueKeys(owner)

    def _change(self, keys: QueueKeys, names: Sequence[str], changed: Change) -> Steps[Sequence[Written]]:
        """Replace states that are still what was read; read the others again. Return those that were replaced."""
        written: list[Written] = []
        for _ in range(TRIES):
            stored = yield from read_settled(keys, names)
            now = yield ops.server_time()
            wanted = [one for name in names if (one := changed(name, stored.get(name), now)) is not None]
            if not wanted:
                return written
            answers = yield own.schedule_put(keys, wanted)
            written += [one for one, done in zip(wanted, answers, strict=True) if done]
            names = [one.name for one, done in zip(wanted, answers, strict=True) if not done]
            if not names:
                return written
        raise OutcomeUnknown(f"schedule {names[0]!r} changes so often that it could not be changed; try again")


def _refuse_none(queue: str) -> None:
    """Let all schedules be changed."""


def _rows(pages: Sequence[tuple[QueueKeys, Sequence[str]]]) -> Steps[list[tuple[str, Any, Any, Any]]]:
    """Read these schedules of queues in one round trip: of each its name, definition, state and latest run."""
    reads: list[ops.Op[Any]] = []
    for keys, names in pages:
        reads += [*own.stored_schedules(keys, names), own.latest_runs(keys, names)]
    replies = pieces((yield reads), 3)
    return [row for (_, names), some in zip(pages, replies, strict=True) for row in zip(names, *some, strict=True)]


def _fates_in(keys: QueueKeys, ids: Sequence[str]) -> Steps[list[str]]:
    """Return where messages are in one home of their queue."""
    consumers = yield ops.members(keys.consumers)
    found: list[str] = yield own.fates(keys, ids, consumers, _MOST_READ)
    return found


def _paused(name: str, old: Stored | None, now: int) -> Written | None:
    if old is None or old.state.source:
        raise no_schedule(name)
    if old.state.paused:
        return None
    return Written(name, old.raw_state, msgspec.structs.replace(without_overdue(old, now), paused=True))


def _resumed(name: str, old: Stored | None, now: int) -> Written | None:
    if old is None or old.state.source:
        raise no_schedule(name)
    if not old.state.paused:
        return None
    state = State.at(old.definition, old.definition.next_tick(now), old.state)
    return Written(name, old.raw_state, msgspec.structs.replace(state, paused=False))


NOTES_OF_QUEUES = Notes("schedules", own.schedule_names, own.unindex_schedules, end_moves)
