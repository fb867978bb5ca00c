"""The loop of a worker with many threads or an event loop: others run its handler."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from reliq import settings
from reliq.holdings import released
from reliq.message import Message
from reliq.store import Link
from reliq.worker.loop import PATIENCE, Loop, Run, drained
from reliq.worker.outcome import after_error, after_return

_PROBATION_PAUSE = 0.25  #: seconds a redelivered message stays away that this process may not start now
_SHORT_BLOCK = 0.05  #: seconds of waiting for new messages while others still run
_GATHERING = 0.001  #: seconds for more runs to end and be settled in the same call, while the pool has enough to do

Submit = Callable[[Callable[[], Any]], None]


class PooledLoop(Loop):
    """Starts its handler on a pool of threads or an event loop, and keeps the pool fed."""

    def __init__(self, *arguments: Any, submit: Submit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._submit = submit
        self._suspects: deque[Message] = deque()  #: redelivered, waiting to run one at a time
        self._suspect: Message | None = None  #: the one that runs, or has run and is not settled yet
        self._ran: deque[tuple[Run, float]] = deque()  #: with the time of their end; not measured yet
        self._at_work: set[object] = set()  #: pool tasks between taking a message and noting its outcome
        self._done = threading.Event()

    def _finished(self) -> bool:
        return not (self._suspects or self.unstarted or self._at_work) and super()._finished()

    def _step(self) -> None:
        if self.stopping:
            self._suspects_back(0.0)
            self._measure()
            self.relieve(self._link)
            self._release_probation()
            self._done.wait(0.02)
            self._done.clear()
            return
        room = self._most_to_hold() - len(self.running) - len(self.unstarted) - len(self._suspects)
        if (messages := self._exchange(max(0, room))) or self._release_probation():
            self._start(messages)
        elif not self.running:
            self._start(self._wait(self._most_to_hold(), self._block))
        elif room > 0 and self._suspect is None and not self._done.is_set():
            self._start(self._wait(room, _SHORT_BLOCK))
        else:
            self._done.wait(_SHORT_BLOCK if room > 0 else settings.BLOCK)
            if self.unstarted:
                time.sleep(_GATHERING)
            self._done.clear()

    def _most_to_hold(self) -> int:
        """What the pace allows; but behind runs that take long nothing is to wait, the others shall have it."""
        stuck = time.monotonic() - self.progress_at > PATIENCE
        return self.pace.slots if stuck else super()._most_to_hold()

    def _start(self, messages: Sequence[Message]) -> None:
        if messages:
            self.progress_at = time.monotonic()
        run_next = self._run_next_async if self.handler.is_async else self._run_next
        for message in messages:
            if message.redelivered:
                self._suspects.append(message)
            else:
                self.unstarted.append(message)
                self._submit(run_next)
        if self._suspects and self._suspect is None and self._shared.probation.acquire(blocking=False):
            self._suspect = self._suspects.popleft()
            # Ahead of the others, so that its place in the pool is the next one free.
            self.unstarted.appendleft(self._suspect)
            self._submit(run_next)

    def _release_probation(self) -> bool:
        """Let the next redelivered message start, if the one before is settled; whether there is one."""
        if self._suspect is not None and self._suspect.element not in self.holdings.held:
            self._suspect = None
            self._shared.probation.release()
        return bool(self._suspects) and self._suspect is None and not self._shared.probation.locked()

    def _look(self, now: float, link: Link) -> None:
        if now - self.progress_at > PATIENCE and self._suspects:
            self._suspects_back(_PROBATION_PAUSE)
        super()._look(now, link)

    def _suspects_back(self, delay: float) -> None:
        self._moves.extend(released(message, delay) for message in drained(self._suspects) if not message.lost)

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
        """The next message to start; None where the watchdog handed it back."""
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
            move = after_return(message, await self.handler.function(message))
        except BaseException as error:  # a cancelled run was settled by whoever cancelled it: _end drops this
            move = after_error(self.handler, message, error, self._owner)
        self._end(message, move)
        self._note(run)
