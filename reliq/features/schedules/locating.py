"""The steps that read schedules, and what a reader gets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec

from reliq.errors import InvalidName, InvalidSetting
from reliq.features.schedules import ops as own
from reliq.features.schedules.model import Definition, Run
from reliq.features.schedules.ops import Stored
from reliq.features.schedules.recurrence import milliseconds_of, moment_of, text_of, time_zone
from reliq.model.keys import QueueKeys
from reliq.ops import Steps


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
            due=None if state.paused else state.due,
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
    """Return a schedule, or None; raises InvalidSetting for a value that reliq did not write."""
    try:
        return own.read_stored(definition, state)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidSetting(
            f"schedule {name!r} in Redis cannot be read ({type(error).__name__}): remove it with "
            f"`reliq schedule remove {name}`, and add it again"
        ) from None


def schedules_in(name: str, definition: bytes | None, state: bytes | None, run: Run | None) -> Sequence[Schedule]:
    """Return the schedule as a list of one, or an empty list; raises as `read_one`."""
    stored = read_one(name, definition, state)
    return [] if stored is None else [Schedule.of(stored, run)]


def places_of(keys: QueueKeys, name: str) -> Steps[Sequence[QueueKeys]]:
    """Return the queues in which a schedule of this queue lies: first the one from which it is being moved."""
    try:
        stored = yield from read_stored(keys, [name])
    except InvalidSetting:  # it can be removed all the same
        return [keys]
    source = stored[name].state.source if name in stored else ""
    return [QueueKeys(source), keys] if source else [keys]


def by_queue(queues: dict[str, str]) -> list[tuple[QueueKeys, list[str]]]:
    """Return the names of schedules by the keys of their queues."""
    pairs = sorted((queue, name) for name, queue in queues.items())
    return [(QueueKeys(queue), [name for _, name in some]) for queue, some in groupby(pairs, key=lambda one: one[0])]
