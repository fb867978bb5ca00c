"""Running a handler for a message: check the lease, mark a redelivered message, run, note the outcome."""

import asyncio
import contextvars
import logging
import os
import time
from collections.abc import Callable

from reliq import forks, ops
from reliq.errors import ReliqError, TimeLimitExceeded
from reliq.model.handlers import Handler
from reliq.model.message import Message
from reliq.model.policy import Retry
from reliq.model.result import Answer
from reliq.ops import Move
from reliq.protocol.outcomes import cancelled, released
from reliq.runtime.failures import failures
from reliq.runtime.moment import Moment
from reliq.transport.store import Store
from reliq.worker.description import Description
from reliq.worker.exchange import Exchange
from reliq.worker.once import began
from reliq.worker.outcome import after_error, after_return
from reliq.worker.threads import in_thread
from reliq.worker.trials import ALONE

log = logging.getLogger("reliq.worker")

_monotonic, _wall, _process, _copy_context = time.monotonic, time.time, os.getpid, contextvars.copy_context


class Run:
    """A running handler."""

    __slots__ = ("cancel", "message", "started")

    def __init__(self, message: Message, started: float) -> None:
        self.message = message
        self.started = started
        self.cancel: Callable[[], None] | None = None  #: cancels an async handler; a thread cannot be cancelled


class Runner:
    """Runs the handler of one queue. Any thread may run messages; the outcomes go to the exchange."""

    def __init__(self, store: Store, handler: Handler, exchange: Exchange, owner: str) -> None:
        self.handler = handler
        self.running: dict[bytes, Run] = {}  #: by element
        self._outliving: set[bytes] = set()  #: elements of runs that go on though their messages are settled
        self._description = Description(exchange.steps.lease)
        self.paused = False  #: set by the worker: hand back messages that have not started, and claim none
        self.handled = 0  #: runs that have ended; with several threads nearly
        self._store = store
        self._exchange = exchange
        self._steps = exchange.steps
        self._steps.handles = self.running.__contains__
        self._steps.run_over = self._run_over
        self._steps.runs = self._runs
        self._owner = owner
        self._process = _process()

    def begin_here(self) -> None:
        """Note that this process runs the handlers; a process that a handler forks ends with the handler."""
        self._process = _process()

    def perform(self, message: Message) -> Run | None:
        """Run the handler and note the outcome; return None, without running it, if the message is lost."""
        if message.was_started and not self._begin_again(message):
            return None
        monotonic, wall = self._steps.trust.until  # Moment.passed() inlined
        now = _monotonic()
        # Behind all other calls, and again after each renewal: the process may be suspended during any of them.
        while not message.lost and (now > monotonic or _wall() > wall):
            self._renew(message)
            monotonic, wall = self._steps.trust.until
            now = _monotonic()
        if message.lost:
            return None
        self._exchange.progress_at = now
        run = self.running[message.element] = Run(message, now)
        try:
            try:
                answer = _copy_context().run(self.handler.function, message)  # what it sets is not for the next one
            finally:
                if _process() != self._process:
                    forks.end_child()
            move = None if answer is None else self._after_return(message, answer)
        except BaseException as error:  # sys.exit() in a handler is a failure of its message
            move = self._after_error(message, error)
        self._end(message, move)
        return run

    async def perform_async(self, message: Message) -> Run | None:
        """Do the same for an async handler; `Run.cancel` cancels it."""
        if message.was_started and not await in_thread(self._begin_again, message):
            return None
        while not message.lost and self._steps.trust.until.passed():
            await in_thread(self._renew, message)
        if message.lost:
            return None
        self._exchange.progress_at = now = _monotonic()
        run = self.running[message.element] = Run(message, now)
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is not None:
            cancel = task.cancel
            run.cancel = lambda: loop.call_soon_threadsafe(cancel)  # type: ignore[assignment]
        try:
            try:
                answer = await self.handler.function(message)
            finally:
                if _process() != self._process:
                    forks.end_child()
            self._steps.lives.check_awaited(message)
            move = self._after_return(message, answer)
        except BaseException as error:  # a cancelled run is settled already: _end drops this outcome
            move = self._after_error(message, error)
        self._end(message, move)
        return run

    def _after_return(self, message: Message, result: object) -> Move | None:
        if isinstance(result, Answer):
            self._steps.answer(message, result.stored)
            return None
        return after_return(message, result)

    def _run_over(self, message: Message, error: Exception | None) -> None:
        """Note that a script has moved a message while its handler runs: what that returns or raises settles nothing.

        `error`: of its step, which is tried again.
        """
        self._exchange.reports.note_suspended(message, failed=error is not None)
        self._hold_for(message, error)
        self.handled += self._take_out(message) is not None

    def _take_out(self, message: Message) -> Run | None:
        """Take out the run of a message, which goes on; None if it has ended."""
        self._outliving.add(message.element)
        run = self.running.pop(message.element, None)
        if run is None:
            self._outliving.discard(message.element)
        return run

    def _runs(self, message: Message) -> bool:
        return message.element in self.running or message.element in self._outliving

    def _after_error(self, message: Message, error: BaseException) -> Move | None:
        if message.element not in self.running:
            return None
        if message.cancelled:
            return cancelled(message)
        self._hold_for(message, error)
        return after_error(self.handler, message, error, self._owner)

    def _hold_for(self, message: Message, error: BaseException | None) -> None:
        """Hold the queue or the key of a message, if its error asks for it."""
        if isinstance(error, Retry) and error.scope != "message" and error.delay:
            self._exchange.hold(error.delay, message.group if error.scope == "key" else None)

    def _end(self, message: Message, move: Move | None) -> None:
        """Note the outcome, unless the message was settled meanwhile."""
        if self.running.pop(message.element, None) is None:
            self._outliving.discard(message.element)
            return
        self.handled += 1
        if move is None:
            self._exchange.ack(message.element)
        else:
            self._exchange.move(move)

    def _renew(self, message: Message) -> None:
        """Renew the lease before the message starts: this process may have been suspended for longer than the lease.

        A message without a confirmed lease is not started; it goes back to the queue.
        """
        steps, keys, consumer = self._steps, self._steps.keys, self._steps.consumer
        sent_at = Moment.now()
        try:
            alive = self._store.call(ops.heartbeat(keys, consumer, steps.lease), timeout=0)
        except ReliqError as error:
            self._give_back(message, error)
            return
        if alive:
            steps.trust.renewed(sent_at)
        elif consumer == steps.consumer:
            self.lost()

    def _give_back(self, message: Message, error: ReliqError) -> None:
        text = "not_started queue=%s id=%s error=%s: Redis did not answer, so the worker releases it"
        kind = ("not_started", message.queue, type(error).__qualname__)
        failures.write(logging.WARNING, kind, text, message.queue, message.id, error)
        self._exchange.move(released(message))
        message.lost = True

    def _begin_again(self, message: Message) -> bool:
        """Read the checkpoint of a message that was started before, and return whether it is to start.

        A redelivered message is marked, so that the monitor knows which one is to be charged if this process dies. It
        does not start if it was cancelled while the consumer that died had it.
        """
        keys, consumer = self._steps.keys, self._steps.consumer
        try:
            if message.redelivered:
                count = self._exchange.at_a_time.pop(message.element, ALONE)
                alone = count == ALONE
                mark = ops.mark_tried(keys, consumer, message.tag) if alone else ops.mark_several(keys, consumer, count)
                self._store.call(mark, timeout=0)
        except ReliqError as error:
            log.warning("queue=%s id=%s starts without its mark in Redis: %s", keys.queue, message.id, error)
        try:
            self._store.run(self._steps.lives.begin(message), timeout=0)
            if message.redelivered:
                self.cancel_runs(self._store.call(ops.told(keys), timeout=0))
        except ReliqError as error:
            self._give_back(message, error)
        return not message.lost

    # --- other threads: watchdog, heartbeat, the end of the worker ---

    def end_overdue(self) -> None:
        """End the runs that exceed the time limit: they have failed, whatever they return."""
        limit = self.handler.time_limit
        if limit is None:
            return
        now = _monotonic()
        for run in list(self.running.values()):
            if now - began(run.message, run.started) > limit:
                error = TimeLimitExceeded(f"the handler ran longer than its time limit of {limit:g} s")
                run.message.overran = error  # first: what the run says from now on is that
                if self._take_out(run.message) is not None:
                    self._expire(run, limit, error)

    def _expire(self, run: Run, limit: float, error: TimeLimitExceeded) -> None:
        text = "time_limit queue=%s id=%s seconds=%g" + ("" if run.cancel else ": its thread is busy until it returns")
        kind = ("time_limit", self.handler.queue, type(error).__qualname__)
        failures.write(logging.WARNING, kind, text, self.handler.queue, run.message.id, limit)
        self._exchange.move(after_error(self.handler, run.message, error, self._owner))
        _abandon(run)

    def description(self) -> bytes | None:
        """Return what Redis is to say about this consumer, None if it is as before."""
        longest = min(list(self.running.values()), key=_started, default=None)
        if longest is None:
            return self._description.changed(self.handled, "", 0, self.paused)
        since = round((longest.started + self._steps.arrivals.clock_offset) * 1000)
        return self._description.changed(self.handled, longest.message.id, since, self.paused)

    def cancel_runs(self, told: ops.Told) -> None:
        """Cancel the runs of cancelled messages; those that have not started do not run. `told`: as Redis has them."""
        for message in self._steps.note_cancelled(told):
            run = self.running.get(message.element)
            if run is None:
                self._exchange.move(cancelled(message, started=False))
                message.lost = True
            elif run.cancel is not None:
                run.cancel()

    def lost(self) -> None:
        """Note that the lease is lost: the results of running handlers are discarded."""
        self._steps.lose()
        for run in list(self.running.values()):
            _abandon(run)

    def abandon(self) -> set[bytes]:
        """Discard the results of all running handlers, whose messages are handed back; return their elements."""
        ran = set(self.running)
        for run in list(self.running.values()):
            if self._take_out(run.message) is not None:
                _abandon(run)
        return ran


def _started(run: Run) -> float:
    return run.started


def _abandon(run: Run) -> None:
    run.message.lost = True
    if run.cancel is not None:
        run.cancel()
