"""The loop of a worker with many threads or an event loop, which run its handler."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reliq import forks
from reliq.model import settings
from reliq.model.message import Message
from reliq.protocol.outcomes import released
from reliq.transport.connection import Connection
from reliq.worker.loop import PATIENCE, Loop, Run, drained
from reliq.worker.outcome import after_error, after_return

_QUARANTINE_PAUSE = 0.25  #: seconds for which a redelivered message that cannot start now is put back
_SHORT_BLOCK = 0.05  #: seconds of waiting for new messages while handlers run
_GATHERING = 0.001  #: seconds for more runs to end and be settled in the same call, while the pool has enough to do

Submit = Callable[[Callable[[], Any]], None]


class PooledLoop(Loop):
    """Starts its handler on a pool of threads or an event loop, and keeps the pool fed."""

    def __init__(self, *arguments: Any, submit: Submit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._submit = submit
        self._quarantined: deque[Message] = deque()  #: redelivered, waiting to run one at a time
        self._in_trial: Message | None = None  #: the redelivered message that runs or is not settled yet
        self._ran: deque[tuple[Run, float]] = deque()  #: runs not measured yet, with the time of their end
        self._at_work: set[object] = set()  #: pool tasks between taking a message and noting its outcome
        self._done = threading.Event()

    def _finished(self) -> bool:
        return not (self._quarantined or self.unstarted or self._at_work) and super()._finished()

    def _step(self) -> None:
        if self.stopping:
            self._release_quarantined(0.0)
            self._measure()
            self.relieve(self._connection)
            self._release_quarantine()
            self._done.wait(0.02)
            self._done.clear()
            return
        room = self._most_to_hold() - len(self.running) - len(self.unstarted) - len(self._quarantined)
        if (messages := self._exchange(max(0, room))) or self._release_quarantine():
            self._start(messages)
        elif not self.running:
            self._start(self._wait(self._most_to_hold(), self._block))
        elif room > 0 and self._in_trial is None and not self._done.is_set():
            self._start(self._wait(room, _SHORT_BLOCK))
        else:
            self._done.wait(_SHORT_BLOCK if room > 0 else settings.BLOCK)
            if self.unstarted:
                time.sleep(_GATHERING)
            self._done.clear()

    def _most_to_hold(self) -> int:
        """Return the prefetch limit; behind slow runs no message waits here, so that other workers get it."""
        stuck = time.monotonic() - self.progress_at > PATIENCE
        return self.pace.slots if stuck else super()._most_to_hold()

    def _start(self, messages: Sequence[Message]) -> None:
        if messages:
            self.progress_at = time.monotonic()
        run_next = self._run_next_async if self.handler.is_async else self._run_next
        for message in messages:
            if message.redelivered:
                self._quarantined.append(message)
            else:
                self.unstarted.append(message)
                self._submit(run_next)
        if self._quarantined and self._in_trial is None and self._shared.quarantine.acquire(blocking=False):
            self._in_trial = self._quarantined.popleft()
            # At the front, so that it gets the next free place in the pool.
            self.unstarted.appendleft(self._in_trial)
            self._submit(run_next)

    def _release_quarantine(self) -> bool:
        """Start the next redelivered message if the previous one is settled; return whether one waits."""
        if self._in_trial is not None and self._in_trial.element not in self.holdings.held:
            self._in_trial = None
            self._shared.quarantine.release()
        return bool(self._quarantined) and self._in_trial is None and not self._shared.quarantine.locked()

    def _look(self, now: float, connection: Connection) -> None:
        if now - self.progress_at > PATIENCE and self._quarantined:
            self._release_quarantined(_QUARANTINE_PAUSE)
        super()._look(now, connection)

    def _release_quarantined(self, delay: float) -> None:
        self._moves.extend(released(message, delay) for message in drained(self._quarantined) if not message.lost)

    def _run_next(self) -> None:
        task = self._begin_task()
        try:
            if (message := self._next_unstarted()) and (run := self._perform(message)):
                self._note(run)
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
            return self.unstarted.popleft()
        except IndexError:
            return None

    def _note(self, run: Run) -> None:
        ended = time.monotonic()
        self.pace.note(ended - run.started, 1)
        if self._measurements is not None:
            self._ran.append((run, ended))

    def _exchange(self, limit: int) -> list[Message]:
        self._measure()
        return super()._exchange(limit)

    def _measure(self) -> None:
        if self._measurements is not None:
            self._measurements.ran(self.handler.queue, drained(self._ran), self.holdings.clock_offset)

    async def _run_next_async(self) -> None:
        task = self._begin_task()
        try:
            if message := self._next_unstarted():
                await self._perform_async(message)
        finally:
            self._end_task(task)

    async def _perform_async(self, message: Message) -> None:
        if self.holdings.trusted_until.passed():
            await asyncio.to_thread(self._renew, message)
        if message.lost:
            return
        if message.redelivered:
            await asyncio.to_thread(self._mark, message)
        run = self._begin(message, time.monotonic())
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is not None:
            cancel = task.cancel
            run.cancel = lambda: loop.call_soon_threadsafe(cancel)  # type: ignore[assignment]
        try:
            try:
                answer = await self.handler.function(message)
            finally:
                if os.getpid() != self._process:
                    forks.end_child()
            move = after_return(message, answer)
        except BaseException as error:  # a cancelled run is settled already: _end drops this outcome
            move = after_error(self.handler, message, error, self._owner)
        self._end(message, move)
        self._note(run)
