"""Schedules: send a message at each tick.

A tick is prepared some seconds before it is due: at its time only the calls are left to send, hundreds of schedules in
each. What was prepared may be out of date by then. The script compares the state of each schedule with the one that was
read: of any number of monitors one sends a tick, and a schedule that was changed is read again.
"""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from reliq.features.schedules import ops as own
from reliq.features.schedules.locating import read_one
from reliq.features.schedules.moving import MOVE_TAKES, read_settled
from reliq.features.schedules.ops import Firing, Stored
from reliq.features.schedules.upcoming import MOST, Prepared, ServerTime, Upcoming, prepared
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.runtime.pieces import grouped
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

AHEAD = 3.0  #: seconds before its time at which a tick is prepared
_LOOK_EVERY = 0.1  #: seconds; a schedule that was changed since it was prepared is sent so much later at most
_NAMES = 20_000  #: schedules of a queue whose names are read at once
_PAGE = 200  #: schedules that are read at once: other duties have their turn in between
_SENT_AT_ONCE = 10_000  #: schedules in a round trip: Redis runs the first calls while others are sent
_OVERDUE = 1000  #: schedules that are caught up at once
_FIRES = 250  #: schedules in one call
_STALE = 1000  #: ms; a tick that is later is read again, and sent by the schedule's catch-up policy
_UNREADABLE_PAUSE = 30_000  #: ms
_DAY = 86_400_000  #: ms

Named = tuple[QueueKeys, str]


class Schedules(Duty[int]):
    """The schedules of all queues."""

    name = "schedules"
    effect = "ticks of schedules are not sent; their catch-up policy applies later"
    brings_due = True
    seeks = "ticks"

    def __init__(self) -> None:
        self.forget()
        self._clock = ServerTime()

    def forget(self) -> None:
        """Forget what was prepared."""
        self._queues: Sequence[QueueKeys] = []
        self._unread: deque[Named] = deque()  #: schedules whose next tick is to be prepared
        self._upcoming = Upcoming()
        self._looked_until: dict[str, int] = {}  #: by queue: ms; schedules that are due earlier were found
        self._next_look = 0.0  #: by time.monotonic()
        self._cramped: set[tuple[str, str]] = set()  #: by queue and name: have more due ticks than room

    def _found_in(self, queues: Sequence[QueueKeys]) -> None:
        """Note the queues that have schedules, and forget what was prepared for others."""
        if queues is self._queues:
            return
        self._queues = queues
        names = {keys.queue for keys in queues}
        for queue in self._looked_until.keys() - names:
            del self._looked_until[queue]
        self._unread = deque(one for one in self._unread if one[0].queue in names)
        self._upcoming.keep(names)

    @property
    def pause(self) -> float:
        """Seconds until there is something to do; infinite without schedules."""
        if not self._queues:
            return math.inf
        if self._unread:
            return 0.0
        return max(0.0, min(self._next_look - time.monotonic(), (self._upcoming.first - self._clock.now()) / 1000))

    def turn(self, survey: Survey) -> Steps[int]:
        """Send what is due, and prepare what will be soon; return the number of messages."""
        self._found_in(survey.found.get(self.seeks, ()))
        if not self._queues:
            return 0
        sent = 0
        while due := self._upcoming.take(self._clock.now(), _STALE, _SENT_AT_ONCE):
            sent += yield from self._send(survey, due)
        if time.monotonic() >= self._next_look:
            overdue = yield from self._look(survey)
            sent += yield from self._send(survey, (yield from self._read(survey, overdue)))
        unread = [self._unread.popleft() for _ in range(min(_PAGE, len(self._unread)))]
        for one in (yield from self._read(survey, unread)):
            self._upcoming.add(one)
        return sent

    # --- find and prepare ---

    def _look(self, survey: Survey) -> Steps[list[Named]]:
        """Note the schedules that are due soon, to be prepared; return those that are due."""

        def ask(some: Sequence[QueueKeys]) -> Steps[list[own.Ticks]]:
            groups = survey.groups(some)
            seen = [[self._looked_until.get(keys.queue, 0) for keys in group] for group in groups]
            answers = yield [
                own.ticks(group, AHEAD, _PAGE, _NAMES, until) for group, until in zip(groups, seen, strict=True)
            ]
            for now, _ in answers:
                self._clock.note(now)
            return [one for _, found in answers for one in found]

        self._next_look = time.monotonic() + _LOOK_EVERY
        overdue: list[Named] = []
        for keys, seen in (yield from survey.attempts.together(self.name, self._queues, ask)):
            until = self._clock.now() + AHEAD * 1000 if len(seen.soon) < _NAMES else seen.soon[-1][1] - 1
            self._looked_until[keys.queue] = max(int(until), self._looked_until.get(keys.queue, 0))
            self._unread.extend((keys, name) for name, _ in seen.soon)
            overdue += [(keys, name) for name, _ in seen.due]
        if len(overdue) >= _PAGE:
            self._next_look = 0.0
        return overdue[:_OVERDUE]

    def _read(self, survey: Survey, names: Sequence[Named]) -> Steps[list[Prepared]]:
        """Read schedules and prepare their ticks."""
        by_queue = grouped(names)

        def ask(some: Sequence[QueueKeys]) -> Steps[list[tuple[list[bytes | None], list[bytes | None]]]]:
            answers = yield [op for keys in some for op in own.stored_schedules(keys, by_queue[keys])]
            return list(zip(answers[::2], answers[1::2], strict=True))

        ready: list[Prepared] = []
        for keys, found in (yield from survey.attempts.together(self.name, list(by_queue), ask, "read")):
            for name, definition, state in zip(by_queue[keys], *found, strict=True):
                try:
                    stored = read_one(name, definition, state)
                    one = None if stored is None else self._prepare(keys, stored)
                except Exception as error:  # noqa: BLE001  what is stored may be anything; it must not stop the others
                    steps = self._put_off(keys, name, error)
                    yield from survey.attempts.of_queue(self.name, keys, steps, None, name)
                else:
                    ready += [] if one is None else [one]
                    if stored is not None and stored.state.source:
                        steps = self._end_move(keys, name)
                        yield from survey.attempts.of_queue(self.name, keys, steps, None, name)
        return ready

    def _end_move(self, keys: QueueKeys, name: str) -> Steps[None]:
        """End the move of a schedule whose mover has died; what the index does not know of does nothing."""
        now = int(self._clock.now())
        yield own.postpone(keys, name, now + MOVE_TAKES)  # until the next try
        left = (yield from read_settled(keys, [name])).get(name)
        if left is not None and left.state.source:
            yield own.postpone(keys, name, now + _DAY)

    def _prepare(self, keys: QueueKeys, stored: Stored) -> Prepared | None:
        most = 1 if (keys.queue, stored.definition.name) in self._cramped else MOST
        return prepared(keys, stored, int(self._clock.now()), most)

    def _put_off(self, keys: QueueKeys, name: str, error: Exception) -> Steps[None]:
        """Leave a schedule that cannot be prepared for a while, and fail."""
        yield own.postpone(keys, name, int(self._clock.now()) + _UNREADABLE_PAUSE)
        raise error

    # --- send ---

    def _send(self, survey: Survey, due: Sequence[Prepared]) -> Steps[int]:
        by_queue = grouped((one.keys, one) for one in due)
        calls = {keys: list(_calls(some)) for keys, some in by_queue.items()}

        def ask(some: Sequence[QueueKeys]) -> Steps[list[list[tuple[Prepared, Firing]]]]:
            asked = [(keys, call) for keys in some for call in calls[keys]]
            answers = yield [own.fire(keys, [one.fire for one in call]) for keys, call in asked]
            done: dict[QueueKeys, list[tuple[Prepared, Firing]]] = {keys: [] for keys in some}
            for (keys, call), (now, codes) in zip(asked, answers, strict=True):
                outcomes = list(zip(call, codes, strict=True))
                self._clock.note(now, early=Firing.EARLY in codes)
                _measure(survey, keys, now, outcomes)
                done[keys] += outcomes
            return list(done.values())

        sent = 0
        for keys, outcomes in (yield from survey.attempts.together(self.name, list(calls), ask, "send")):
            for one, code in outcomes:
                if code is Firing.SENT:
                    sent += len(one.fire.messages)
                    self._follow_up(keys, one)
                elif code is Firing.FULL and len(one.fire.messages) > 1:
                    self._cramped.add((keys.queue, one.fire.name))
                elif code is Firing.EARLY:
                    self._upcoming.add(one)
        return sent

    def _follow_up(self, keys: QueueKeys, one: Prepared) -> None:
        """Prepare the tick after one that was sent, if it is due before what the next look finds."""
        state = one.fire.state
        if state.wakes is None or state.wakes > self._clock.now():
            self._cramped.discard((keys.queue, one.fire.name))
        if state.wakes is not None and state.wakes <= self._looked_until.get(keys.queue, 0):
            after = self._prepare(keys, Stored(one.stored.definition, state, msgspec.json.encode(state)))
            if after is not None:
                self._upcoming.add(after)


def _measure(survey: Survey, keys: QueueKeys, now: int, outcomes: Iterable[tuple[Prepared, Firing]]) -> None:
    if survey.measurements is not None:
        sent = [one.fire.run for one, code in outcomes if code is Firing.SENT and one.fire.messages]
        survey.measurements.late(keys.logical, [(now - run.due) / 1000 for run in sent])


def _calls(due: Sequence[Prepared]) -> Iterator[list[Prepared]]:
    """Split what one queue is to send into calls."""
    call: list[Prepared] = []
    messages = 0
    for one in due:
        if call and (len(call) == _FIRES or messages + len(one.fire.messages) > MOST):
            yield call
            call, messages = [], 0
        call.append(one)
        messages += len(one.fire.messages)
    if call:
        yield call
