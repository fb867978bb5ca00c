"""The steps of schedules: define, list, pause, run by hand. The monitor sends the ticks (duty.py).

A schedule lies in the hash slot of its queue, so that a tick and its message are one atomic step. `reliq:schedules`, in
another slot, tells which queue has a name. It is a hint: what is listed there is verified.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec

from reliq import ops
from reliq.contract import values
from reliq.contract.values import Duration, whole
from reliq.errors import InvalidName, InvalidSetting, OutcomeUnknown
from reliq.features.schedules import ops as own
from reliq.features.schedules.model import (
    Definition,
    Run,
    ScheduleOptions,
    State,
    check_schedule_name,
    define,
    ticks_now,
)
from reliq.features.schedules.ops import Stored, Written
from reliq.features.schedules.recurrence import milliseconds_of, moment_of, text_of, time_zone
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import Body
from reliq.model.upgrades import VERSION_HEADER
from reliq.ops import Steps
from reliq.protocol.notes import Notes
from reliq.protocol.queue import QueueSteps
from reliq.runtime.pieces import pieces

_TRIES = 20  #: of a change, while monitors send ticks of the same schedule
_PAGE = 500  #: schedules in one call
_MOST_PREVIEWED = 1000
_MOST_READ = 1000  #: messages of each list, to find one


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is in Redis. Times are aware datetimes in its time zone."""

    name: str
    queue: str
    when: str  #: a cron expression, or an interval such as "30s"
    tz: str
    body: bytes = field(repr=False)
    paused: bool
    next_tick: datetime | None  #: None after its end, and while it is paused
    last_tick: datetime | None  #: of the latest run
    last_run_at: datetime | None
    last_id: str  #: of the latest message; empty before the first, and if the latest ticks were missed
    lateness: float  #: seconds between the time of the latest run, with its jitter, and its message
    fired: int  #: messages sent so far
    missed: int  #: ticks that were not sent
    definition: Definition = field(repr=False)
    due: int | None  #: ms at which the next tick is sent, its jitter included

    @classmethod
    def of(cls, stored: Stored, run: Run | None) -> "Schedule":
        definition, state = stored.definition, stored.state
        zone = time_zone(definition.tz)

        def moment(ms: int | None) -> datetime | None:
            return None if ms is None else moment_of(ms, zone)

        return cls(
            name=definition.name,
            queue=definition.queue,
            when=definition.when,
            tz=definition.tz,
            body=definition.body,
            paused=state.paused,
            next_tick=None if state.paused else moment(state.tick),
            last_tick=moment(run.tick if run else None),
            last_run_at=moment(run.at if run else None),
            last_id=run.id if run else "",
            lateness=max(0, run.at - run.due) / 1000 if run else 0.0,
            fired=state.fired,
            missed=state.missed,
            definition=definition,
            due=state.wakes,
        )

    @property
    def ended(self) -> bool:
        """Whether no tick is left."""
        return self.due is None and not self.paused

    def following(self, count: int) -> list[datetime]:
        """Return the next ticks, at most `count`; none while it is paused."""
        if self.next_tick is None:
            return []
        ticks = self.definition.ticks(milliseconds_of(self.next_tick) - 1, count)
        return [moment_of(tick, self.next_tick.tzinfo or time_zone(self.tz)) for tick in ticks]

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON, without its body; times are ISO 8601."""
        definition = self.definition
        return {
            "name": self.name,
            "queue": self.queue,
            "when": self.when,
            "tz": self.tz,
            "paused": self.paused,
            "ended": self.ended,
            "next_tick": _iso(self.next_tick),
            "last_tick": _iso(self.last_tick),
            "last_run_at": _iso(self.last_run_at),
            "last_id": self.last_id,
            "lateness": self.lateness,
            "fired": self.fired,
            "missed": self.missed,
            "start": None if definition.start is None else text_of(definition.start),
            "end": None if definition.end is None else text_of(definition.end),
            "jitter": definition.jitter / 1000,
            "catch_up": definition.catch_up,
            "catch_up_limit": definition.catch_up_limit,
        }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def stamped(definition: Definition, version: int) -> Definition:
    """Return the definition with the version of its body in its headers, unless they have one."""
    if version == 1 or VERSION_HEADER in definition.headers:
        return definition
    return msgspec.structs.replace(definition, headers={**definition.headers, VERSION_HEADER: str(version)})


class ScheduleSteps:
    """The operations on schedules, as steps."""

    def __init__(self, queue: Callable[[str], QueueSteps], max_body: int = values.BODY_LIMIT) -> None:
        self._queue = queue
        self._max_body = max_body

    def define(self, name: str, when: Duration, queue: str, body: Body, options: ScheduleOptions) -> Definition:
        """Return a checked definition; raises InvalidName, InvalidSetting or InvalidMessage."""
        definition = define(name, when, queue, body, options, self._max_body)
        return stamped(definition, self._queue(queue).version)

    def put(self, definitions: Sequence[Definition]) -> Steps[int]:
        """Add schedules, and change those that have another definition; return how many were added or changed.

        A schedule with the same definition keeps its next tick, even if that is overdue.
        """
        changed = set[str]()
        for page in pieces(definitions, _PAGE):
            for _ in range(_TRIES):
                changed |= {*(yield from self._put(page))}
                if not (page := (yield from _gone(page))):
                    break
            else:
                raise OutcomeUnknown(f"schedule {page[0].name!r} is removed each time it is added; try again")
        return len(changed)

    def _put(self, definitions: Sequence[Definition]) -> Steps[Sequence[str]]:
        """Do that once; return the names of those that were added or changed."""
        by_name = {one.name: one for one in definitions}
        queues = {one.name: one.queue for one in definitions}
        before = yield own.queues_of_schedules(list(by_name))
        moving = {name: queue for name, queue in zip(by_name, before, strict=True) if queue not in (None, queues[name])}
        moved = yield from _taken_out(moving)  # first, so that none runs in two queues
        yield own.index_schedules(queues)
        changed: list[str] = []
        for keys, names in _by_queue(queues):
            yield ops.announce(keys.queue)
            changed += yield from self._change(
                keys, names, lambda name, old, now: _defined(by_name[name], old, now, moved.get(name))
            )
        after = yield own.queues_of_schedules(list(queues))
        for (name, queue), owner in zip(queues.items(), after, strict=True):
            if owner != queue:  # another process has given it to another queue meanwhile, or has removed it
                yield own.schedule_remove(QueueKeys(queue), [name])
        return changed

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
        (queue,) = yield own.queues_of_schedules([check_schedule_name(name)])
        if queue is None:
            return False
        removed = yield own.schedule_remove(QueueKeys(queue), [name])
        yield own.unindex_schedules([name])
        return bool(removed)

    def run(self, name: str) -> Steps[str]:
        """Send the message of a schedule now, beside its ticks; return the id. Raises as a send."""
        schedule = yield from self.get(name)
        definition, now = schedule.definition, (yield ops.server_time())
        identity = f"{name}@{datetime.fromtimestamp(now / 1000, time_zone('UTC')).strftime('%Y-%m-%dT%H:%M:%S.%fZ')}"
        (sent,) = yield from self._queue(definition.queue).send_many([definition.message(identity)])
        run = Run(now, now, sent, 1, by_hand=True, at=now)
        yield own.note_run(QueueKeys(definition.queue), name, run)
        return sent

    def get(self, name: str) -> Steps[Schedule]:
        """Return a schedule; raises InvalidName if there is none."""
        keys = yield from self._home(name)
        (definition,), (state,), (run,) = yield [*own.stored_schedules(keys, [name]), own.latest_runs(keys, [name])]
        found = _schedule(name, definition, state, run)
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
        for keys, names in _by_queue({name: of for name, of in index.items() if queue in (None, of)}):
            for page in pieces(names, _PAGE):
                raw = yield [*own.stored_schedules(keys, page), own.latest_runs(keys, page)]
                for name, definition, state, run in zip(page, *raw, strict=True):
                    try:
                        found.extend(_schedule(name, definition, state, run))
                    except InvalidSetting as error:
                        unreadable[name] = str(error)
        return sorted(found, key=lambda one: one.name), unreadable

    def fates(self, schedules: Sequence[Schedule]) -> Steps[dict[str, str]]:
        """Return for each schedule, by name, where the message of its latest run is: one of FATES, "" without one.

        "gone": handled, or removed by hand. "unknown": not among the newest 1,000 messages of a long list.
        """
        fates = {one.name: "" for one in schedules}
        latest = {one.name: one.last_id for one in schedules}
        for keys, names in _by_queue({one.name: one.queue for one in schedules if one.last_id}):
            ids = [latest[name] for name in names]
            consumers = yield ops.members(keys.consumers)
            fates |= zip(names, (yield own.fates(keys, ids, consumers, _MOST_READ)), strict=True)
        return fates

    def preview(self, name: str, count: int = 10) -> Steps[Sequence[datetime]]:
        """Return the next ticks of a schedule, at most `count`, in its time zone; none while it is paused."""
        whole(count, "count", 1, _MOST_PREVIEWED)
        return (yield from self.get(name)).following(count)

    def _home(self, name: str) -> Steps[QueueKeys]:
        (queue,) = yield own.queues_of_schedules([check_schedule_name(name)])
        if queue is None:
            raise no_schedule(name)
        return QueueKeys(queue)

    def _change(self, keys: QueueKeys, names: Sequence[str], changed: "Change") -> Steps[Sequence[str]]:
        """Replace states that are still what was read; read the others again. Return those that were replaced."""
        written: list[str] = []
        for _ in range(_TRIES):
            now = yield ops.server_time()
            stored = yield from read_stored(keys, names)
            wanted = [one for name in names if (one := changed(name, stored.get(name), now)) is not None]
            if not wanted:
                return written
            answers = yield own.schedule_put(keys, wanted)
            written += [one.name for one, done in zip(wanted, answers, strict=True) if done]
            names = [one.name for one, done in zip(wanted, answers, strict=True) if not done]
            if not names:
                return written
        raise OutcomeUnknown(f"schedule {names[0]!r} changes so often that it could not be changed; try again")


Change = Callable[[str, Stored | None, int], Written | None]


def _taken_out(queues: dict[str, str]) -> Steps[dict[str, State]]:
    """Remove schedules from their queues; return the state of each."""
    states: dict[str, State] = {}
    for keys, names in _by_queue(queues):
        there = yield from read_stored(keys, names)
        now = (yield ops.server_time()) if there else 0
        states |= {name: _without_overdue(one, now) for name, one in there.items()}
        yield own.schedule_remove(keys, names)
    return states


def _defined(definition: Definition, old: Stored | None, now: int, moved: State | None) -> Written | None:
    """Return the schedule with a new definition; None if it has it already. `moved`: its state in another queue."""
    if old is not None and old.definition == definition:
        return None
    if old is None:
        return Written(definition.name, b"", State.at(definition, definition.next_tick(now), moved), definition)
    if old.definition.timing == definition.timing:
        state = State.at(definition, old.state.tick, old.state)
    else:
        state = State.at(definition, definition.next_tick(now), _without_overdue(old, now))
    return Written(definition.name, old.raw_state, state, definition)


def _without_overdue(old: Stored, now: int) -> State:
    """Return the state of a schedule that sends no tick of those that are overdue: they are missed."""
    state = old.state
    if state.tick is None or state.wakes is None or state.wakes > now:
        return state
    overdue = ticks_now(old.definition, state.tick, now)
    return msgspec.structs.replace(state, missed=state.missed + len(overdue.send) + overdue.missed)


def _paused(name: str, old: Stored | None, now: int) -> Written | None:
    if old is None:
        raise no_schedule(name)
    if old.state.paused:
        return None
    return Written(name, old.raw_state, msgspec.structs.replace(_without_overdue(old, now), paused=True))


def _resumed(name: str, old: Stored | None, now: int) -> Written | None:
    if old is None:
        raise no_schedule(name)
    if not old.state.paused:
        return None
    state = State.at(old.definition, old.definition.next_tick(now), old.state)
    return Written(name, old.raw_state, msgspec.structs.replace(state, paused=False))


def _gone(definitions: Sequence[Definition]) -> Steps[Sequence[Definition]]:
    """Return those that are not there any more: removed, or lost by a restart of Redis from an older state."""
    owners = yield own.queues_of_schedules([one.name for one in definitions])
    there: dict[str, Stored] = {}
    for keys, names in _by_queue({one.name: of for one, of in zip(definitions, owners, strict=True) if of is not None}):
        there |= yield from read_stored(keys, names)
    return [one for one in definitions if one.name not in there]


class UnknownSchedule(InvalidName):
    """There is no schedule with this name."""

    exit_status = 1  #: of a command: it was used rightly


def no_schedule(name: str) -> UnknownSchedule:
    return UnknownSchedule(f"there is no schedule {name!r}: `reliq schedule list` shows all of them")


def read_stored(keys: QueueKeys, names: Sequence[str]) -> Steps[dict[str, Stored]]:
    """Read schedules of a queue, those that exist; raises InvalidSetting for one that reliq did not write."""
    definitions, states = yield own.stored_schedules(keys, names)
    found: dict[str, Stored] = {}
    for name, definition, state in zip(names, definitions, states, strict=True):
        if (one := read_one(name, definition, state)) is not None:
            found[name] = one
    return found


def read_one(name: str, definition: bytes | None, state: bytes | None) -> Stored | None:
    """Return a schedule, None if there is none; raises InvalidSetting for one that reliq did not write."""
    try:
        return own.read_stored(definition, state)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidSetting(
            f"schedule {name!r} in Redis cannot be read ({type(error).__name__}): remove it with "
            f"`reliq schedule remove {name}`, and add it again"
        ) from None


def _schedule(name: str, definition: bytes | None, state: bytes | None, run: Run | None) -> Sequence[Schedule]:
    """Return the schedule, nothing if there is none; raises InvalidSetting for one that reliq did not write."""
    stored = read_one(name, definition, state)
    return [] if stored is None else [Schedule.of(stored, run)]


NOTES_OF_QUEUES = Notes("schedules", own.schedule_names, own.unindex_schedules)


def _by_queue(queues: dict[str, str]) -> list[tuple[QueueKeys, list[str]]]:
    pairs = sorted((queue, name) for name, queue in queues.items())
    return [(QueueKeys(queue), [name for _, name in some]) for queue, some in groupby(pairs, key=lambda one: one[0])]
