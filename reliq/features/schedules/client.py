# Generated from reliq/features/schedules/aio.py by tools/generate_sync.py: do not edit
"""Schedules: messages that are sent at the times of a cron expression, or at intervals."""

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Unpack

from reliq.contract.values import Duration
from reliq.features.schedules.decorator import Every
from reliq.features.schedules.locating import Schedule
from reliq.features.schedules.model import ScheduleOptions
from reliq.features.schedules.steps import Check, ScheduleSteps
from reliq.model.outgoing import Body
from reliq.transport.store import Store


class Schedules:
    """The schedules of all queues, `app.schedules`. Redis stores them; the monitors send their messages.

        app.schedules.add("report", "0 7 * * MON-FRI", "reports", {"kind": "daily"}, tz="Europe/Berlin")
        app.schedules.add("poll", "30s", "polls")

    A tick is one message, under any number of monitors; its id is `name@` and the time of the tick.
    """

    def __init__(self, store: Store, steps: ScheduleSteps) -> None:
        self._store = store
        self._steps = steps

    def checked(self, check: Check) -> "Schedules":
        """Return the same for who may not change all schedules: `check` gets the queue that has one, and may raise.

        What it has refused is not changed, also where a schedule comes to another queue at the same moment.
        """
        return Schedules(self._store, self._steps.checked(check))

    def add(
        self, name: str, when: Duration, queue: str, body: Body = b"", **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Send `body` into the queue at each tick of `when`, a cron expression or an interval such as "30s".

        The options are those of ScheduleOptions. A name that exists gets this definition, and keeps its next tick if
        the definition is the same: the call may be repeated. Raises InvalidName, InvalidSetting and InvalidMessage
        without changing anything, and RedisUnavailable.
        """
        definition = self._steps.define(name, when, queue, body, options)
        self._store.run(self._steps.put([definition]))
        return self._store.run(self._steps.get(name))

    def get(self, name: str) -> Schedule:
        """Return a schedule with its next tick and its latest run; raises InvalidName if there is none."""
        return self._store.run(self._steps.get(name))

    def list(self, queue: str | None = None) -> Sequence[Schedule]:
        """Return all schedules that can be read, or those of one queue, sorted by name."""
        return self._store.run(self._steps.list(queue))

    def unreadable(self) -> dict[str, str]:
        """Return for each schedule that reliq did not write, or cannot read on this machine, why."""
        _, unreadable = self._store.run(self._steps.readable())
        return unreadable

    def remove(self, name: str) -> bool:
        """Remove a schedule, and return whether there was one; messages that it has sent stay."""
        return self._store.run(self._steps.remove(name))

    def pause(self, name: str) -> None:
        """Send nothing until `resume`. Raises InvalidName if there is no such schedule."""
        self._store.run(self._steps.pause(name))

    def resume(self, name: str) -> None:
        """End a pause. The next tick is the first one from now on."""
        self._store.run(self._steps.resume(name))

    def run(self, name: str) -> str:
        """Send the message of a schedule now, in addition to its ticks, and return the id. Raises as `Queue.send`."""
        return self._store.run(self._steps.run(name))

    def fate(self, name: str) -> str:
        """Return where the message of the latest run is: ready, processing, delayed, parked, dead, gone or unknown.

        "gone": handled, or removed by hand. "unknown": not among the newest 1,000 messages of a list. Empty: no run.
        """
        schedule = self._store.run(self._steps.get(name))
        return (self._store.run(self._steps.fates([schedule])))[name]

    def preview(self, name: str, count: int = 10) -> Sequence[datetime]:
        """Return the next ticks, at most `count`, in the time zone of the schedule; none while it is paused."""
        return self._store.run(self._steps.preview(name, count))


class ScheduleCalls(Every):
    """What an application has of schedules."""

    store: Store

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules of all queues."""
        return Schedules(self.store, self._schedules)
