"""One queue's loop in a worker: settle what is done and claim what comes next, in one call; start it, or run it.

Shared with the watchdog, which relieves a loop whose handler takes long. What two threads touch are deques and dicts
whose single operations are atomic: whoever takes an item out has it alone.
"""

import asyncio
import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from reliq import ops, settings
from reliq.consumer import Holdings, released
from reliq.errors import ReliqError, TimeLimitExceeded
from reliq.handlers import DeadHook, Handler
from reliq.keys import QueueKeys, connection_name
from reliq.message import Message, Undecodable
from reliq.observe import Measurements
from reliq.ops import Move
from reliq.outage import Outage
from reliq.store import Link, Store
from reliq.worker.outcome import after_error, after_return
from reliq.worker.pace import MOST, Pace

log = logging.getLogger("reliq.worker")

PATIENCE = 0.05  #: seconds a message may wait behind running handlers before it is handed back to the others
_PROBATION_PAUSE = 1.0  #: seconds a redelivered message stays away that this process may not start now
_SHORT_BLOCK = 0.05  #: seconds of waiting for new messages while others still run
_GATHERING = 0.001  #: seconds for more runs to end and be settled in the same call, while the pool has enough to do
_RETRY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  #: seconds while Redis is away

Submit = Callable[[Callable[[], Any]], None]


class Run:
    """A handler at work."""

    __slots__ = ("cancel", "message", "started")

    def __init__(self, message: Message, started: float) -> None:
        self.message = message
        self.started = started
        self.cancel: Callable[[], None] | None = None  #: stops an async handler; a thread can only be told


class Asked(NamedTuple):
    """An exchange under way: what it settles, and how its answer is had."""

    acks: list[bytes]
    moves: list[Move]
    answer: Callable[[], tuple[str, list[Message]]]


class Shared:
    """What the loops of one process have in common."""

    def __init__(self, measurements: Measurements | None = None) -> None:
        self.measurements = measurements  #: where runs are measured, if they are
        self.turn = threading.Lock()  #: with one thread, only one loop runs handlers at a time
        self.probation = threading.Lock()  #: at most one redelivered message runs in a process: see reclaim


class Loop(ABC):
    """What the loops with and without a pool have in common."""

    def __init__(
        self,
        store: Store,
        handler: Handler,
        hooks: Sequence[DeadHook],
        owner: str,
        lease: float,
        slots: int,
        shared: Shared,
    ) -> None:
        self.handler = handler
        self.holdings = Holdings(QueueKeys(handler.queue), owner, lease)
        self.pace = Pace(slots)
        # Shorter than the lease: a BLMOVE must not outlive the consumer that it moves messages to.
        self._block = min(settings.BLOCK, lease / settings.HEARTBEATS_PER_LEASE)
        self.running: dict[bytes, Run] = {}
        self.unstarted: deque[Message] = deque()
        self.stopping = False
        self.progress_at = time.monotonic()  #: when a message was last taken or started
        self._store = store
        self._link = store.link(connection_name(owner))
        self._hooks = hooks
        self._owner = owner
        self._shared = shared
        self._measurements = shared.measurements if handler.measured else None
        self._acks: deque[bytes] = deque()
        self._moves: deque[Move] = deque()
        self._asked: deque[Asked] = deque()  #: exchanges that are under way on `_link`
        self._exchanging = threading.Lock()

    # --- the loop's own thread ---

    def run(self) -> None:
        """Work until `stopping`, then hand back what is not started, finish what runs, and leave."""
        failures, outage = 0, Outage(log, f"queue={self.handler.queue}")
        while not (self.stopping and not self.running and self._finished()):
            try:
                self._step()
                failures = 0
                outage.over()
            except ReliqError as error:
                outage.failed(error)
                time.sleep(_RETRY_PAUSES[min(failures, len(_RETRY_PAUSES) - 1)])
                failures += 1
                if self.stopping and failures > len(_RETRY_PAUSES):
                    break
        try:
            self._store.run(self.holdings.leave(), self._link)
        except ReliqError as error:
            log.warning("queue=%s left without saying so: %s", self.handler.queue, error)
        self._link.close()

    @abstractmethod
    def _step(self) -> None:
        """Settle, claim, and run or start what came."""

    def _most_to_hold(self) -> int:
        """What the pace allows; but of a cycle only what starts at once: who waited here would be behind the others."""
        return self.pace.slots if self.holdings.cyclic else self.pace.limit()

    def _finished(self) -> bool:
        return not (self._acks or self._moves or self.unstarted or self._asked)

    def _exchange(self, limit: int) -> list[Message]:
        """Settle what is done, and claim up to `limit`."""
        self._ask(limit)
        return self._collect()

    def _ask(self, limit: int) -> None:
        """Begin an exchange; `_collect` ends it."""
        acks, moves = self._take_outcomes()
        with self._exchanging, self._kept(acks, moves):
            steps = self.holdings.settle(acks, moves, limit)
            self._asked.append(Asked(acks, moves, self._store.start(steps, self._link, timeout=0)))

    def _collect(self) -> list[Message]:
        """What the first exchange that is under way has claimed, if there is one: whoever comes first has it."""
        with self._exchanging:
            if not self._asked:
                return []
            asked = self._asked.popleft()
            with self._kept(asked.acks, asked.moves):
                codes, messages = asked.answer()
        self._settled(asked.moves, codes[len(asked.acks) :])
        return messages

    def _gather(self) -> None:
        """End all exchanges that are under way."""
        while self._asked:
            self.unstarted.extend(self._collect())

    @contextlib.contextmanager
    def _kept(self, acks: list[bytes], moves: list[Move]) -> Iterator[None]:
        """They are still to be settled when the settling fails."""
        try:
            yield
        except BaseException:
            self._acks.extendleft(acks)
            self._moves.extendleft(moves)
            raise

    def _wait(self, limit: int, seconds: float) -> list[Message]:
        messages = self._store.run(self.holdings.wait(limit, seconds), self._link, timeout=0)
        self._bury_hooks()
        return messages

    def _take_outcomes(self) -> tuple[list[bytes], list[Move]]:
        return _drained(self._acks), _drained(self._moves)

    def _settled(self, moves: Sequence[Move], codes: str) -> None:
        for move, code in zip(moves, codes, strict=True):
            if code == "d" and move.destination == "dead":
                self.holdings.buried.append(move)
        self._bury_hooks()

    def _bury_hooks(self) -> None:
        """Tell the application of messages that this worker has put into the dead letters."""
        while self.holdings.buried:
            move = self.holdings.buried.pop()
            log.info("dead queue=%s id=%s reason=%s", self.handler.queue, move.id, move.counter.partition(":")[2])
            for hook in self._hooks:
                try:
                    hook(Message.decode(self.handler.queue, move.again))
                except BaseException:  # also sys.exit(): the worker lives on
                    log.exception("on_dead of queue=%s raised", self.handler.queue)

    # --- running a message, on whatever thread ---

    def _begin(self, message: Message) -> Run:
        self.progress_at = started = time.monotonic()
        run = self.running[message.element] = Run(message, started)
        return run

    def _perform(self, message: Message) -> Run | None:
        """Run the handler and note the outcome, unless somebody has settled the message meanwhile."""
        if message.lost:
            return None
        run = self._begin(message)
        try:
            move = after_return(message, self.handler.function(message))
        except BaseException as error:  # sys.exit() in a handler is its failure, not the worker's end
            move = after_error(self.handler, message, error, self._owner)
        self._end(message, move)
        return run

    def _end(self, message: Message, move: Move | None) -> None:
        if self.running.pop(message.element, None) is None:
            return
        if move is None:
            self._acks.append(message.element)
        else:
            self._moves.append(move)

    # --- the watchdog's thread ---

    def watch(self, now: float, link: Link) -> None:
        """Relieve a loop that got stuck behind slow handlers, and end runs that exceed their time limit."""
        limit = self.handler.time_limit
        if limit is not None:
            for run in list(self.running.values()):
                if now - run.started > limit:
                    self._expire(run, limit)
        if now - self.progress_at > PATIENCE and (self.unstarted or self._acks or self._moves or self._asked):
            if not self._exchanging.locked():  # else the loop's own thread waits for Redis, and not for a handler
                self._gather()
            self.relieve(link)

    def relieve(self, link: Link) -> None:
        """Settle what is done and hand back what waits, while the loop's own thread is busy."""
        waiting = [released(message) for message in _drained(self.unstarted) if not message.lost]
        acks, moves = self._take_outcomes()
        moves += waiting
        if not acks and not moves:
            return
        holdings = self.holdings
        op = ops.settle(holdings.keys, holdings.consumer, holdings.lease, acks, moves)
        with self._kept(acks, moves):
            answer = self._store.call(op, link, timeout=0)
        for element in (*acks, *(move.element for move in moves)):
            holdings.held.pop(element, None)
        self._settled(moves, answer.codes[len(acks) :])

    def _expire(self, run: Run, limit: float) -> None:
        if self.running.pop(run.message.element, None) is None:
            return
        error = TimeLimitExceeded(f"the handler ran longer than its time limit of {limit:g} s")
        goes_on = "" if run.cancel else "; its thread is taken until it returns"
        log.warning("time_limit queue=%s id=%s seconds=%g%s", self.handler.queue, run.message.id, limit, goes_on)
        self._moves.append(after_error(self.handler, run.message, error, self._owner))
        self._abandon(run)

    def lost(self) -> None:
        """The lease is gone: nobody wants the results of what runs here."""
        self.holdings.lose()
        for run in list(self.running.values()):
            self._abandon(run)

    @staticmethod
    def _abandon(run: Run) -> None:
        run.message.lost = True
        if run.cancel is not None:
            run.cancel()

    def hand_back(self, link: Link) -> None:
        """The grace is over: return everything that is still held, uncharged, while the loop's own thread is stuck.

        That thread may be claiming at this moment. So the lease is ended first, which no claim survives, and the list
        itself is read. The consumer stays in its set: should a BLMOVE slip through, the monitor finds it there.
        """
        for run in list(self.running.values()):
            if self.running.pop(run.message.element, None) is not None:
                self._abandon(run)
        keys, consumer = self.holdings.keys, self.holdings.consumer
        acks, moves = self._take_outcomes()
        self._store.call([ops.settle(keys, consumer, self.holdings.lease, acks, moves), ops.end(keys, consumer)], link)
        returned = [
            Move(element, "tail", "released", again=message.again())
            for element, message in self._decoded(self._store.call(ops.read_back(keys, consumer), link))
        ]
        self._store.call(ops.settle(keys, consumer, self.holdings.lease, (), returned), link)

    def _decoded(self, elements: list[bytes]) -> Iterator[tuple[bytes, Message]]:
        for element in elements:
            with contextlib.suppress(Undecodable):  # the monitor buries it
                yield element, Message.decode(self.handler.queue, element)


class InlineLoop(Loop):
    """Runs its handler itself: the fast path for sync handlers with one thread, no pool in between.

    Where handlers are quick and the queue is long, the next batch is asked for before this one runs, and the one after
    it before the answer is read: Redis and this process work at the same time.
    """

    _flowing = False  #: the latest batch was as large as they get

    def _step(self) -> None:
        if not self._work(None):
            # Outside of the turn, so that the loop of another queue can run its handler meanwhile.
            messages = self._wait(1, self._block)  # then the exchange that settles it claims the others
            if messages:
                self.progress_at = time.monotonic()
                self.unstarted.extend(messages)
                self._work(messages)

    def _work(self, messages: list[Message] | None) -> bool:
        """Run a batch, claiming it first if there is none; whether there was any."""
        with self._shared.turn:
            if messages is None:
                messages = self._next_batch()
                self.progress_at = time.monotonic()
                self.unstarted.extend(messages)
            if self.stopping:
                self._gather()
                self.relieve(self._link)
                return True
            started, runs = time.monotonic(), 0
            ran: list[Run] = []
            while self.unstarted and not self.stopping:
                try:
                    message = self.unstarted.popleft()
                except IndexError:  # the watchdog was faster
                    break
                if run := self._perform(message):
                    ran.append(run)
                runs += 1
                if message.redelivered:
                    self._measure(ran)
                    self._gather()
                    self._exchange(0)  # settled before the next one starts: see reclaim
            if runs:
                self.pace.note(time.monotonic() - started, runs)
                self._measure(ran)
            return bool(messages)

    def _next_batch(self) -> list[Message]:
        messages: list[Message] = []
        flowing, self._flowing = self._flowing, False
        if flowing and not self.stopping:
            self._ask(self._most_to_hold())
        while self._asked and not messages:
            messages = self._collect()
        if not messages:
            messages = self._exchange(0 if self.stopping else self._most_to_hold())
        self._flowing = len(messages) >= MOST
        if self._flowing and not self._asked and not self.stopping:
            self._ask(self._most_to_hold())
        return messages

    def _measure(self, ran: list[Run]) -> None:
        """Each run ended when the next one started, the last one just now."""
        if self._measurements is not None and ran:
            self._measurements.ran_in_turn(self.handler.queue, ran, time.monotonic(), self.holdings.clock_offset)
        ran.clear()


class PooledLoop(Loop):
    """Starts its handler on a pool of threads or an event loop, and keeps the pool fed."""

    def __init__(self, *arguments: Any, submit: Submit, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._submit = submit
        self._suspects: deque[Message] = deque()  #: redelivered, waiting to run one at a time
        self._suspect: Message | None = None  #: the one that runs, or has run and is not settled yet
        self._ran: deque[tuple[Run, float]] = deque()  #: with the time of their end; not measured yet
        self._done = threading.Event()

    def _finished(self) -> bool:
        return super()._finished() and not self._suspects

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

    def watch(self, now: float, link: Link) -> None:
        if now - self.progress_at > PATIENCE and self._suspects:
            self._suspects_back(_PROBATION_PAUSE)
        super().watch(now, link)

    def _suspects_back(self, delay: float) -> None:
        self._moves.extend(released(message, delay) for message in _drained(self._suspects) if not message.lost)

    def _run_next(self) -> None:
        try:
            message = self.unstarted.popleft()
        except IndexError:  # handed back meanwhile
            return
        if run := self._perform(message):
            self._note(run)
        self._done.set()

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
            self._measurements.ran(self.handler.queue, _drained(self._ran), self.holdings.clock_offset)

    async def _run_next_async(self) -> None:
        try:
            message = self.unstarted.popleft()
        except IndexError:
            return
        if not message.lost:
            run = self._begin(message)
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
        self._done.set()


def _drained(items: deque[Any]) -> list[Any]:
    """Everything that is in it now; what another thread takes at the same time, it has alone."""
    taken = []
    while True:
        try:
            taken.append(items.popleft())
        except IndexError:
            return taken
