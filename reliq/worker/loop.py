"""The loop of one queue in a worker: settle finished messages and claim the next ones in one call, then run them.

Shared with the watchdog, which takes over settling while a handler takes long. Both threads share only deques and
dicts with atomic single operations: an item that one thread takes out belongs to it alone.
"""

import contextlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from reliq import forks, ops
from reliq.errors import ReliqError, TimeLimitExceeded
from reliq.model import settings
from reliq.model.element import Undecodable
from reliq.model.handlers import DeadHook, Handler
from reliq.model.keys import QueueKeys, connection_name
from reliq.model.message import Message
from reliq.observability.histograms import Measurements
from reliq.ops import Move, Settled
from reliq.ops.schema import Counter
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.outcomes import released
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.connection import Connection
from reliq.transport.store import PendingCall, Store
from reliq.worker.failures import failures
from reliq.worker.outcome import after_error, after_return
from reliq.worker.prefetch import Prefetch

log = logging.getLogger("reliq.worker")

_monotonic, _wall, _process = time.monotonic, time.time, os.getpid

PATIENCE = 0.05  #: seconds a message may wait behind running handlers before it is handed back to the others
_RETRY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  #: seconds while Redis is away


class Run:
    """A running handler."""

    __slots__ = ("cancel", "message", "started")

    def __init__(self, message: Message, started: float) -> None:
        self.message = message
        self.started = started
        self.cancel: Callable[[], None] | None = None  #: cancels an async handler; a thread cannot be cancelled


class PendingExchange(NamedTuple):
    """A pipelined settle-and-claim call with its reply still to be read."""

    acks: list[bytes]
    moves: list[Move]
    call: PendingCall[tuple[str, list[Message]]]


class Shared:
    """The state shared by the loops of one process."""

    def __init__(self, measurements: Measurements | None = None) -> None:
        self.measurements = measurements  #: measurements of the runs, if wanted
        self.turn = threading.Lock()  #: with one thread, only one loop runs handlers at a time
        self.takers = 0  #: loops that take turns
        self.quarantine = threading.Lock()  #: at most one redelivered message runs in a process: see reclaim


class Loop(ABC):
    """The base of the loops with and without a pool."""

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
        self.holdings = ConsumerSteps(QueueKeys(handler.queue), owner, lease)
        self.holdings.keeps_marks = True
        self.pace = Prefetch(slots)
        # Shorter than the lease: a BLMOVE must not outlive its consumer.
        self._block = min(settings.BLOCK, lease / settings.HEARTBEATS_PER_LEASE)
        self.running: dict[bytes, Run] = {}
        self.unstarted: deque[Message] = deque()
        self.stopping = False
        self.progress_at = time.monotonic()  #: time at which a message was last taken or started
        self._store = store
        self._connection = store.connection(connection_name(owner))
        self._connection.on_connect = self.holdings.connected
        self._hooks = hooks
        self._owner = owner
        self._shared = shared
        self._measurements = shared.measurements if handler.measured else None
        self._acks: deque[bytes] = deque()
        self._moves: deque[Move] = deque()
        self._asked: deque[PendingExchange] = deque()  #: exchanges that are under way on `_connection`
        self._exchanging = threading.Lock()
        self._relieving = threading.Lock()  #: held while the watchdog settles for this loop
        self._left = False  #: whether the consumer is unregistered
        self._process = _process()

    # --- the loop's own thread ---

    def run(self) -> None:
        """Work until `stopping`; then hand back messages not started, finish running ones, and leave."""
        self._process = _process()
        failures, outage = 0, OutageLog(log, f"queue={self.handler.queue}")
        while not (self.stopping and self._leave()):
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
        self._connection.close()

    def _leave(self) -> bool:
        """Hand back held messages and unregister the consumer, if nothing is left to settle.

        Not while the watchdog settles: the messages it has taken out would be handed back and run again.
        """
        with self._relieving:
            if not self._finished():
                return False
            self._left = True
            try:
                self._store.run(self.holdings.leave(), self._connection)
            except ReliqError as error:
                text = "not_unregistered queue=%s error=%s: the monitor returns what it held when the lease ends"
                log.warning(text, self.handler.queue, error)
            return True

    @abstractmethod
    def _step(self) -> None:
        """Settle, claim, and run or start the claimed messages."""

    def _most_to_hold(self) -> int:
        """Return the prefetch limit; for a cycle, only as many as start at once: waiting here would lose their turn."""
        return self.pace.slots if self.holdings.cyclic else self.pace.limit()

    def _finished(self) -> bool:
        """Whether no message is left; checked in the order in which messages move, so that none is missed."""
        return not (self.unstarted or self.running or self._acks or self._moves or self._asked)

    def _exchange(self, limit: int) -> list[Message]:
        """Settle finished messages and claim up to `limit` new ones."""
        self._ask(limit)
        return self._collect()

    def _ask(self, limit: int) -> None:
        """Begin an exchange; `_collect` completes it."""
        acks, moves = self._take_outcomes()
        with self._exchanging, self._kept(acks, moves):
            steps = self.holdings.settle(acks, moves, limit)
            self._asked.append(PendingExchange(acks, moves, self._store.start(steps, self._connection, timeout=0)))

    def _collect(self) -> list[Message]:
        """Complete the first pending exchange, if any, and return the messages that it claimed."""
        with self._exchanging:
            if not self._asked:
                return []
            asked = self._asked.popleft()
            with self._kept(asked.acks, asked.moves):
                codes, messages = asked.call.result()
        self._settled(asked.moves, codes[len(asked.acks) :])
        return messages

    def _gather(self) -> None:
        """Complete all pending exchanges."""
        while self._asked:
            self.unstarted.extend(self._collect())

    @contextlib.contextmanager
    def _kept(self, acks: list[bytes], moves: list[Move]) -> Iterator[None]:
        """Keep the outcomes for another try if settling fails."""
        try:
            yield
        except BaseException:
            self._acks.extendleft(acks)
            self._moves.extendleft(moves)
            raise

    def _wait(self, limit: int, seconds: float) -> list[Message]:
        messages = self._store.run(self.holdings.wait(limit, seconds), self._connection, timeout=0)
        self._bury_hooks()
        return messages

    def _take_outcomes(self) -> tuple[list[bytes], list[Move]]:
        return drained(self._acks), drained(self._moves)

    def _settled(self, moves: Sequence[Move], codes: str) -> None:
        for move, code in zip(moves, codes, strict=True):
            if code == Settled.DONE and move.destination == "dead":
                self.holdings.buried.append(move)
        self._bury_hooks()

    def _bury_hooks(self) -> None:
        """Call the application's hooks for the messages that this worker has made dead letters."""
        while self.holdings.buried:
            move = self.holdings.buried.pop()
            failures.died(self.handler.queue, move.again)
            for hook in self._hooks:
                try:
                    hook(Message.decode(self.handler.queue, move.again))
                except BaseException as error:  # even sys.exit(): the worker goes on
                    kind = ("on_dead_failed", self.handler.queue, type(error).__qualname__)
                    text = "on_dead_failed queue=%s id=%s error_class=%s"
                    failures.write(logging.ERROR, kind, text, self.handler.queue, move.id, kind[2], error=error)

    # --- running a message, on any thread ---

    def _begin(self, message: Message, started: float) -> Run:
        self.progress_at = started
        run = self.running[message.element] = Run(message, started)
        return run

    def _perform(self, message: Message) -> Run | None:
        """Run the handler and note the outcome, unless the message was settled meanwhile."""
        monotonic, wall = self.holdings.trusted_until  # Moment.passed() inlined
        now = _monotonic()
        if now > monotonic or _wall() > wall:
            self._renew(message)
        if message.lost:
            return None
        if message.redelivered:
            self._mark(message)
        run = self._begin(message, now)
        try:
            try:
                answer = self.handler.function(message)
            finally:
                if _process() != self._process:
                    forks.end_child()
            move = after_return(message, answer)
        except BaseException as error:  # sys.exit() in a handler is a failure of its message
            move = after_error(self.handler, message, error, self._owner)
        self._end(message, move)
        return run

    def _renew(self, message: Message) -> None:
        """Renew the lease before the message starts: this process may have been suspended for longer than the lease.

        A message without a confirmed lease is not started; it goes back to the queue.
        """
        keys, consumer = self.holdings.keys, self.holdings.consumer
        sent_at = Moment.now()
        try:
            alive = self._store.call(ops.heartbeat(keys, consumer, self.holdings.lease), timeout=0)
        except ReliqError as error:
            text = "not_started queue=%s id=%s error=%s: whether its lease is alive is not known, so it is released"
            kind = ("not_started", keys.queue, type(error).__qualname__)
            failures.write(logging.WARNING, kind, text, keys.queue, message.id, error)
            self._moves.append(released(message))
            message.lost = True
            return
        if alive:
            self.holdings.renewed(sent_at)
        elif consumer == self.holdings.consumer:
            self.lost()

    def _mark(self, message: Message) -> None:
        """Mark the message, so that the monitor charges it if this process dies of it."""
        holdings = self.holdings
        try:
            self._store.call(ops.mark_tried(holdings.keys, holdings.consumer, message.tag), timeout=0)
        except ReliqError as error:
            log.warning("queue=%s id=%s starts unmarked: %s", holdings.keys.queue, message.id, error)

    def _end(self, message: Message, move: Move | None) -> None:
        if self.running.pop(message.element, None) is None:
            return
        if move is None:
            self._acks.append(message.element)
        else:
            self._moves.append(move)

    # --- the watchdog's thread ---

    def watch(self, now: float, connection: Connection) -> None:
        """Settle for a loop that waits for slow handlers, and end runs that exceed their time limit."""
        if self._relieving.acquire(blocking=False):
            try:
                if not self._left:
                    self._look(now, connection)
            finally:
                self._relieving.release()

    def _look(self, now: float, connection: Connection) -> None:
        limit = self.handler.time_limit
        if limit is not None:
            for run in list(self.running.values()):
                if now - run.started > limit:
                    self._expire(run, limit)
        if now - self.progress_at > PATIENCE and (self.unstarted or self._acks or self._moves or self._asked):
            if not self._exchanging.locked():  # else the loop's own thread waits for Redis, not for a handler
                self._gather()
            self.relieve(connection)

    def relieve(self, connection: Connection) -> None:
        """Settle finished messages and hand back waiting ones while the loop's own thread is busy."""
        waiting = [released(message) for message in drained(self.unstarted) if not message.lost]
        acks, moves = self._take_outcomes()
        moves += waiting
        if not acks and not moves:
            return
        with self._kept(acks, moves):
            answer = self._store.call(self.holdings.settle_op(acks, moves), connection, timeout=0)
        self.holdings.note_settled([*acks, *(move.element for move in moves)])
        self._settled(moves, answer.codes[len(acks) :])

    def _expire(self, run: Run, limit: float) -> None:
        if self.running.pop(run.message.element, None) is None:
            return
        error = TimeLimitExceeded(f"the handler ran longer than its time limit of {limit:g} s")
        text = "time_limit queue=%s id=%s seconds=%g" + ("" if run.cancel else ": its thread is busy until it returns")
        kind = ("time_limit", self.handler.queue, type(error).__qualname__)
        failures.write(logging.WARNING, kind, text, self.handler.queue, run.message.id, limit)
        self._moves.append(after_error(self.handler, run.message, error, self._owner))
        self._abandon(run)

    def lost(self) -> None:
        """Note that the lease is lost: the results of running handlers are discarded."""
        self.holdings.lose()
        for run in list(self.running.values()):
            self._abandon(run)

    @staticmethod
    def _abandon(run: Run) -> None:
        run.message.lost = True
        if run.cancel is not None:
            run.cancel()

    def hand_back(self, connection: Connection) -> None:
        """Return all held messages at the end of the grace, uncharged, while the loop's own thread is stuck.

        That thread may be claiming at this moment. So the lease is ended first, which no claim survives, and the
        processing list is read. The consumer stays registered: the monitor finds there what a late BLMOVE has moved.
        """
        for run in list(self.running.values()):
            if self.running.pop(run.message.element, None) is not None:
                self._abandon(run)
        if not self._exchanging.locked():
            self._gather()  # a pending exchange may settle messages that would be handed back
        keys, consumer = self.holdings.keys, self.holdings.consumer
        acks, moves = self._take_outcomes()
        self._store.call([self.holdings.settle_op(acks, moves), ops.end(keys, consumer)], connection)
        returned = [
            Move(element, "tail", Counter.RELEASED, again=message.again())
            for element, message in self._decoded(self._store.call(ops.read_back(keys, consumer), connection))
        ]
        self._store.call(ops.settle(keys, consumer, self.holdings.lease, (), returned), connection)

    def _decoded(self, elements: list[bytes]) -> Iterator[tuple[bytes, Message]]:
        for element in elements:
            with contextlib.suppress(Undecodable):  # the monitor makes it a dead letter
                yield element, Message.decode(self.handler.queue, element)


def drained(items: deque[Any]) -> list[Any]:
    """Empty the deque and return its items; an item that another thread takes meanwhile belongs to that thread."""
    taken = []
    while True:
        try:
            taken.append(items.popleft())
        except IndexError:
            return taken
