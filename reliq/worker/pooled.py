"""The loop of a worker with many threads or an event loop, which run its handler."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reliq.contract import values
from reliq.model.message import Message
from reliq.worker.drained import drained
from reliq.worker.exchange import Exchange
from reliq.worker.loop import PAUSED_LOOK, Shared
from reliq.worker.prefetch import Prefetch
from reliq.worker.runner import Run, Runner

_SHORT_BLOCK = 0.05  #: seconds of waiting for new messages while handlers run
_GATHERING = 0.001  #: seconds for more runs to end and be settled in the same call, while the pool has enough to do
_STOP_LOOK = 0.02  #: seconds between two looks at running handlers while the worker stops

Submit = Callable[[Callable[[], Any]], None]


class PooledLoop:
    """Starts its handler on a pool of threads or an event loop, and keeps the pool fed."""

    def __init__(self, exchange: Exchange, runner: Runner, shared: Shared, slots: int, submit: Submit) -> None:
        """`submit` runs a function, or a coroutine function if the handler is async, on the pool of `slots`."""
        self.exchange = exchange
        self.runner = runner
        self.stopping = False
        self._prefetch = Prefetch(slots, exchange.trip)
        self._shared = shared
        self._measurements = shared.measurements if runner.handler.measured else None
        self._submit = submit
        self._task = self._run_next_async if runner.handler.is_async else self._run_next
        self._in_trial: dict[bytes, Message] = {}  #: the redelivered messages that run or are not settled yet
        self._unsubmitted = 0  #: messages that have no task on the pool yet: they wait for the end of a trial
        self._ran: deque[tuple[Run, float]] = deque()  #: runs not measured yet, with the time of their end
        self._at_work: set[object] = set()  #: pool tasks between taking a message and noting its outcome
        self._done = threading.Event()  #: a run has ended
        self._broken: BaseException | None = None  #: why a task could not note the outcome of its message

    def step(self) -> bool:
        """Settle ended runs and start what is claimed with that; if nothing comes, rest or wait for either."""
        if self._broken is not None:  # its message would stay here, unsettled, for as long as this process lives
            raise RuntimeError("the outcome of a message could not be noted") from self._broken
        if self.stopping or self.runner.paused:
            if not self.stopping:
                self.exchange.ensure_registered()
            self._hand_back(_STOP_LOOK if self.stopping else PAUSED_LOOK)
            return False
        self._measure()
        room = self._room()
        waits = not self._in_trial
        if self._start(self.exchange.settle_and_claim(max(0, room), waits=waits)):
            return False
        if not (self.runner.running or self.exchange.unstarted or self._keeps_clear()):
            if not self._in_trial and self._shared.rest(self):
                return True
            if not self.stopping:
                self._start(self.exchange.wait(self._limit()))
        elif room > 0 and not self._in_trial and not (self._done.is_set() or self.exchange.steps.limits.full):
            self._start(self.exchange.wait(room, _SHORT_BLOCK))
        else:
            self._done.wait(_SHORT_BLOCK if room > 0 or self._keeps_clear() else values.BLOCK)
            if self.exchange.unstarted:
                time.sleep(_GATHERING)
            self._done.clear()
        return False

    def busy(self) -> bool:
        """Whether a task of the pool has taken a message and not noted its outcome."""
        return bool(self._at_work)

    def _hand_back(self, pause: float) -> None:
        """Hand back what has not started, and settle what has ended."""
        self.exchange.release_quarantined(0.0)
        self._measure()
        self.exchange.relieve()
        self._end_trials()
        self._submit_others()
        self._done.wait(pause)
        self._done.clear()

    # --- what to claim, what to start ---

    def _room(self) -> int:
        """Return how many more messages to hold; negative if there are too many."""
        exchange = self.exchange
        if self._keeps_clear():
            return 0
        return self._limit() - len(self.runner.running) - len(exchange.unstarted) - len(exchange.quarantined)

    def _limit(self) -> int:
        """Return how many messages to hold: one per slot behind slow runs, where other workers get the rest, and for a
        cycle, where waiting here would lose their turn.
        """
        one_per_slot = self.exchange.steps.arrivals.cyclic or self.exchange.stuck()
        return self._prefetch.slots if one_per_slot else self._prefetch.limit()

    def _start(self, messages: Sequence[Message]) -> bool:
        """Start messages on the pool, and those that have waited for their trial; return whether there are any."""
        exchange = self.exchange
        if messages:
            exchange.progress_at = time.monotonic()
        for message in messages:
            if message.redelivered:
                exchange.quarantined.append(message)
            else:
                exchange.unstarted.append(message)
                self._unsubmitted += 1
        self._end_trials()
        any_trial = False
        while (tried := self._next_trial()) is not None:
            self._in_trial[tried.element], any_trial = tried, True
            # At the front, so that it gets the next free place in the pool.
            exchange.unstarted.appendleft(tried)
            self._submit(self._task)
        self._submit_others()
        return any_trial or bool(messages)

    def _submit_others(self) -> None:
        """Have the pool run the other messages, unless a suspect runs alone."""
        if not any(map(_is_suspect, self._in_trial.values())):
            for _ in range(self._unsubmitted):
                self._submit(self._task)
            self._unsubmitted = 0

    def _keeps_clear(self) -> bool:
        """Whether nothing new is to start, because a suspect runs alone or is about to."""
        if self._in_trial:
            return any(map(_is_suspect, self._in_trial.values()))
        try:
            return _is_suspect(self.exchange.quarantined[0]) and not self._shared.trials.running
        except IndexError:
            return False

    def _next_trial(self) -> Message | None:
        """Take the next redelivered message, if it may start now."""
        exchange = self.exchange
        try:
            message = exchange.quarantined.popleft()
        except IndexError:  # none, or the watchdog was faster
            return None
        waits = _is_suspect(message) and (self._at_work or exchange.unstarted)
        if not waits and (count := self._shared.trials.begin(message)):
            exchange.at_a_time[message.element] = count
            return message
        exchange.quarantined.appendleft(message)
        return None

    def _end_trials(self) -> None:
        """Note which of those in trial are settled: the next redelivered messages of this process may start."""
        for element in [one for one in self._in_trial if one not in self.exchange.steps.held]:
            del self._in_trial[element]
            self.exchange.at_a_time.pop(element, None)
            self._shared.trials.end(element)

    # --- tasks on the pool: each runs one message ---

    def _run_next(self) -> None:
        task = self._begin_task()
        try:
            if (message := self._next_unstarted()) and (run := self.runner.perform(message)):
                self._note(run)
        except BaseException as error:
            self._broken = error
        finally:
            self._end_task(task)

    async def _run_next_async(self) -> None:
        task = self._begin_task()
        try:
            if (message := self._next_unstarted()) and (run := await self.runner.perform_async(message)):
                self._note(run)
        except asyncio.CancelledError:  # before the handler began: the end of the pool
            raise
        except BaseException as error:
            self._broken = error
        finally:
            self._end_task(task)

    def _begin_task(self) -> object:
        task = object()
        self._at_work.add(task)
        return task

    def _end_task(self, task: object) -> None:
        self._at_work.discard(task)
        self._done.set()

    def _next_unstarted(self) -> Message | None:
        """Return the next message to start; None if the watchdog has handed it back."""
        try:
            return self.exchange.unstarted.popleft()
        except IndexError:
            return None

    def _note(self, run: Run) -> None:
        ended = time.monotonic()
        self._prefetch.note(ended - run.started, 1)
        if self._measurements is not None:
            self._ran.append((run, ended))

    def _measure(self) -> None:
        if self._measurements is not None:
            queue, clock_offset = self.runner.handler.queue, self.exchange.steps.arrivals.clock_offset
            self._measurements.ran(queue, drained(self._ran), clock_offset)


def _is_suspect(message: Message) -> bool:
    """Whether it was charged with a death before; it runs alone, so that it is charged with no death of another one."""
    return message.deliveries > 0
