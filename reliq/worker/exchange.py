"""The exchange of a loop with Redis: finished messages go, and the next ones come, in one call.

The loop's thread and the watchdog share this object. The watchdog takes over settling while a handler takes long. The
deques have atomic single operations: an item that one thread takes out belongs to it alone. Two locks do the rest:

- `_asking` is held by the thread that uses the loop's connection: two at once would get each other's answers;
- `_relieving` is held by another thread while it settles (the watchdog, or that of kombu's acks), and by the loop while
  it leaves: never both at once.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from reliq import ops
from reliq.contract import values
from reliq.errors import OutcomeUnknown, ReliqError
from reliq.model.breaker import Breaker
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys, connection_name
from reliq.model.message import Message
from reliq.model.worker import Doing
from reliq.ops import Destination, Move, Settled
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.outcomes import released
from reliq.protocol.oversized import takeable
from reliq.transport.connection import Connection
from reliq.transport.store import PendingCall, Store
from reliq.worker.drained import drained
from reliq.worker.flow_control import FlowReport, FlowReports
from reliq.worker.prefetch import RoundTrip

log = logging.getLogger("reliq.worker")

T = TypeVar("T")

#: Seconds, beside two round trips, that a message may wait behind running handlers before it is handed back.
_PATIENCE = 0.05
_READ_AGAIN = 0.5  #: seconds for which bodies are requested again after a lost connection: a batch is half done
_LOOK_EVERY = 0.005  #: seconds between two looks whether a BLMOVE has ended
QUARANTINE_PAUSE = 0.25  #: seconds for which a redelivered message that cannot start now is put back


class PendingExchange(NamedTuple):
    """A pipelined settle-and-claim call with its reply still to be read."""

    acks: list[bytes]
    moves: list[Move]
    reported: FlowReport
    call: PendingCall[tuple[str, list[Message]]]


class Exchange:
    """What one consumer of a worker has claimed and not started, has finished and not settled, and the calls for it."""

    def __init__(
        self,
        store: Store,
        queue: str,
        owner: str,
        lease: float,
        on_dead: Callable[[Move], None],
        breaker: Breaker | None = None,
        keeps_marks: bool = True,
    ) -> None:
        """`on_dead` is called for each message that this worker makes a dead letter. `keeps_marks`: as of its steps."""
        self.steps = ConsumerSteps(
            QueueKeys(queue), owner, lease, may_age=True, keeps_marks=keeps_marks, doing=Doing(),
            most_bytes=values.HOLD_BYTES,
        )  # fmt: skip
        self.reports = FlowReports(self.steps, breaker)
        self.hold = self.reports.hold
        self.unstarted: deque[Message] = deque()  #: claimed, in the order in which they start
        self.quarantined: deque[Message] = deque()  #: claimed and redelivered, waiting for their trial
        self.at_a_time: dict[bytes, int] = {}  #: by element, of those in trial: how many may run together
        self.progress_at = time.monotonic()  #: time at which a message was last taken or started
        self.trip = RoundTrip()  #: of a call that settles
        self._acks: deque[bytes] = deque()
        self._moves: deque[Move] = deque()
        self.ack = self._acks.append  #: note the element of a message that is done; any thread
        self.move = self._moves.append  #: note where a message goes that is not done; any thread
        self._under_way: deque[PendingExchange] = deque()
        self._asking = threading.Lock()
        self._relieving = threading.Lock()
        self._left = False  #: whether the consumer is unregistered
        self._waits = False  #: whether a BLMOVE may be under way, which moves a message without a look at the lease
        self._store = store
        self._owner = owner
        self.take_connection(store.connection(connection_name(owner)))
        self._on_dead = on_dead

    # --- the loop's own thread ---

    def ensure_registered(self) -> None:
        """Register the consumer unless it is registered."""
        if not self.steps.alive:
            with self._asking:
                self._store.run(self.steps.ensure_registered(), self._connection, timeout=0)

    def settle_and_claim(self, limit: int, *, waits: bool = True) -> list[Message]:
        """Settle finished messages and claim up to `limit` new ones; `waits`: the caller waits if there are none."""
        began, asks = time.monotonic(), bool(self._acks or self._moves)
        self.begin(limit, waits=waits)
        messages = self.complete()
        if asks:
            self.trip.note(time.monotonic() - began)
        return messages

    def begin(self, limit: int, *, waits: bool = True) -> None:
        """Send a settle-and-claim call; `complete` reads its reply. Several may be under way."""
        acks, moves = self._take_outcomes()
        is_idle = self.steps.idle if waits else self.steps.limits.idle
        limit = 0 if is_idle and not (acks or moves) else limit
        reported = self.reports.take(acks, moves)
        if any(hold.group is None for hold in reported.holds):
            limit = 0  # the queue is held from now on, and this call claims before it holds
        with self._asking, self._kept(acks, moves, reported):
            steps = self.steps.settle(self.steps.in_order(acks), moves, limit, reported.ops)
            call = self._store.start(steps, self._connection, timeout=0)
            self._under_way.append(PendingExchange(acks, moves, reported, call))

    def complete(self) -> list[Message]:
        """Complete the first call under way, if any, and return the messages that it claimed."""
        with self._asking:
            if not self._under_way:
                return []
            first = self._under_way.popleft()
            with self._kept(first.acks, first.moves, first.reported):
                codes, messages = first.call.result()
        self._settled(first.moves, codes[len(first.acks) :])
        return messages

    @property
    def has_left(self) -> bool:
        """Whether the consumer unregisters or hands its messages back, and so has no lease to lose."""
        return self._left

    @property
    def arrived(self) -> bool:
        """Whether the reply to the first call under way has arrived."""
        with self._asking:
            return bool(self._under_way) and self._under_way[0].call.arrived

    def request_bodies(self, messages: Sequence[Message]) -> PendingCall[list[bytes | None]]:
        """Request bodies; `answer` reads the reply."""
        op = ops.stored_bodies(self.steps.keys, [message.reference for message in messages])
        with self._asking:
            return self._store.start(ops.one(op), self._connection, timeout=_READ_AGAIN)

    def answer(self, call: PendingCall[T]) -> T:
        """Read the reply to a request."""
        with self._asking:
            return call.result()

    def complete_all(self) -> None:
        """Complete all calls under way, and wait for one that another thread completes.

        The messages that they claimed are unstarted.
        """
        self.unstarted.extend(self.complete())
        while self._under_way:
            self.unstarted.extend(self.complete())

    @property
    def under_way(self) -> int:
        """How many calls are under way."""
        return len(self._under_way)

    def quiet_for(self, seconds: float) -> bool:
        """Whether this consumer holds nothing, and the queue has had no messages for so long.

        What the watchdog settles at this moment is held until that has succeeded.
        """
        lately = time.monotonic() - max(self.progress_at, self.steps.came_at) < seconds
        left = self.steps.held or self._acks or self._moves or self._under_way
        return not (lately or left) and self.steps.rests

    def give_connection(self) -> Connection | None:
        """Give away the connection while nothing is under way on it; None if it is not connected."""
        if not self._connection.connected:
            return None  # the next one ends what the server may still do for the former one
        given = self._connection
        self.take_connection(self._store.connection(connection_name(self._owner)))
        return given

    def take_connection(self, connection: Connection) -> None:
        """Use a connection on which nothing is under way."""
        connection.on_connect = self.steps.connected
        self._connection = connection

    def wait(self, limit: int, seconds: float = values.BLOCK) -> list[Message]:
        """Wait for messages and claim up to `limit`; shorter than the lease, which a BLMOVE must not outlive.

        Do nothing while a call is under way: the watchdog may have handed back what this loop had to run meanwhile.
        """
        seconds = min(seconds, self.steps.lease / values.HEARTBEATS_PER_LEASE)
        self._waits = True  # before the look at `_left`: `hand_back` sets that, and `unregister` looks at this
        with self._asking:
            busy = self._left or self._under_way
            messages = [] if busy else self._store.run(self.steps.wait(limit, seconds), self._connection, timeout=0)
        self._waits = False  # not after an error: Redis may still wait then
        self._announce_dead()
        return messages

    def add_unstarted(self, messages: Sequence[Message]) -> None:
        """Add claimed messages to those that start next."""
        if messages:
            self.progress_at = time.monotonic()
            self.unstarted.extend(messages)

    def claim(self, limit: int) -> list[Message]:
        """Settle, then claim up to `limit` messages without waiting, also from a queue that was empty for a while."""
        self.relieve()
        with self._asking:
            messages = self._store.run(self.steps.claim(limit), self._connection, timeout=0)
        self._announce_dead()
        return messages

    def leave(self, busy: Callable[[], bool]) -> bool:
        """Hand back held messages and unregister the consumer, if no handler is `busy` and nothing is left to settle.

        Not while the watchdog settles: the messages it has taken out would be handed back and run again.
        """
        with self._relieving:
            # In the order in which messages move, so that none is missed.
            if self.quarantined or self.unstarted or busy() or self._acks or self._moves or self._under_way:
                return False
            self._left = True
            try:
                self._store.run(self.steps.leave(), self._connection)
            except ReliqError as error:
                text = "not_unregistered queue=%s error=%s: the monitor returns what it held when the lease ends"
                log.warning(text, self.steps.keys.queue, error)
            return True

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def interrupt(self) -> None:
        """Make `wait` fail at once; called by another thread."""
        self._connection.interrupt()

    # --- the watchdog's thread ---

    @contextlib.contextmanager
    def watched(self) -> Iterator[bool]:
        """Keep the loop from leaving meanwhile; the value is False if it is leaving or has left."""
        free = self._relieving.acquire(blocking=False)
        try:
            yield free and not self._left
        finally:
            if free:
                self._relieving.release()

    def stuck(self) -> bool:
        """Whether no message was taken or started for so long that waiting ones should go to other workers."""
        return time.monotonic() - self.progress_at > _PATIENCE + 2 * self.trip.seconds

    def relieve_if_stuck(self, connection: Connection) -> bool:
        """Settle finished messages and hand back waiting ones if the loop's own thread waits for slow handlers.

        Return whether Redis has answered.
        """
        if not self.stuck():
            return False
        self.release_quarantined(QUARANTINE_PAUSE)
        if not (self.unstarted or self._acks or self._moves or self._under_way):
            return False
        self._complete_unless_asking()
        return self.relieve(connection)

    def release_quarantined(self, delay: float) -> None:
        """Put redelivered messages that wait for their turn back into the queue, with the next settle."""
        self._moves.extend(released(message, delay) for message in drained(self.quarantined) if not message.lost)

    def _complete_unless_asking(self) -> None:
        # With the lock taken, the loop's own thread waits for Redis, not for a handler.
        if self._under_way and not self._asking.locked():
            self.complete_all()

    # --- any thread ---

    def relieve(self, connection: Connection | None = None) -> bool:
        """Settle finished messages and hand back unstarted ones; the watchdog gives a connection of its own.

        Return whether there were any.
        """
        # The oldest one last: it is taken first again.
        waiting = [released(message) for message in reversed(drained(self.unstarted)) if not message.lost]
        acks, moves = self._take_outcomes()
        moves += waiting
        reported = self.reports.take(acks, moves)  # first: it may change a move
        if not (acks or moves or reported.ops):
            return False
        connection = connection or self._connection
        with self._kept(acks, moves, reported):
            moves = list(self._store.run(takeable(moves), connection, timeout=0))
            codes = self._settle(acks, moves, reported.ops, connection)
        self._store.run(self.steps.after_settling(acks, moves, codes), connection, timeout=0)
        self._settled(moves, codes[len(acks) :])
        return True

    def _settle(self, acks: list[bytes], moves: list[Move], also: list[ops.Op[Any]], connection: Connection) -> str:
        """Settle in another thread than that of the loop; return the codes."""
        try:
            answer, *_ = self._store.call([self.steps.settle_op(acks, moves), *also], connection, timeout=0)
        except OutcomeUnknown:
            self.steps.note_unanswered(acks, moves)
            raise
        return self.steps.note_answer(acks, moves, answer.codes)

    def hand_back(self, connection: Connection, ran: Collection[bytes] = ()) -> None:
        """Return all held messages at the end of the grace, uncharged, while the loop's own thread is stuck.

        `ran`: elements of those whose handlers have begun.

        That thread may be claiming at this moment. So the lease is ended first, which no claim survives, and the
        processing list is read. The consumer stays registered, until `unregister`: a late BLMOVE may move a message.
        """
        self._left = True
        self._complete_unless_asking()  # a call under way may settle messages that would be handed back
        keys, consumer = self.steps.keys, self.steps.consumer
        acks, moves = self._take_outcomes()
        reported = self.reports.take(acks, moves)
        moves = list(self._store.run(takeable(moves), connection))
        ending = [ops.end(keys, consumer), *reported.ops]
        answer, *_ = self._store.call([self.steps.settle_op(acks, moves), *ending], connection)
        codes = self.steps.note_answer(acks, moves, answer.codes)
        elements = self._store.call(ops.read_back(keys, consumer), connection)
        returned = [released(message, started=message.element in ran) for message in self._decoded(elements)]
        self._store.run(self.steps.claimant.settle((), returned), connection)
        self._settled(moves, codes[len(acks) :])  # last: the application's hooks may take their time

    def unregister(self, connection: Connection, consumer: str, until: float) -> bool:
        """Unregister a consumer, by its name, that was handed back; return False if it stays for the monitor.

        It stays if the loop's own thread is in a BLMOVE after `until`, by time.monotonic(), or was when its connection
        was lost; or if such a call has moved a message to it: the monitor finds it there.
        """
        while self._waits and time.monotonic() < until:
            time.sleep(_LOOK_EVERY)
        return not self._waits and self._store.call(ops.forget(self.steps.keys, consumer, leaving=True), connection)

    def _decoded(self, elements: list[bytes]) -> Iterator[Message]:
        for element in elements:
            with contextlib.suppress(Undecodable):  # the monitor makes it a dead letter
                message = Message.decode(self.steps.keys.queue, element)
                message.holder = self.steps  # which knows what was reported about it
                yield message

    def _take_outcomes(self) -> tuple[list[bytes], list[Move]]:
        return drained(self._acks), drained(self._moves)

    @contextlib.contextmanager
    def _kept(self, acks: list[bytes], moves: list[Move], reported: FlowReport) -> Iterator[None]:
        """Keep the outcomes for another try if settling fails."""
        try:
            yield
        except BaseException:
            self._acks.extendleft(reversed(acks))
            self._moves.extendleft(reversed(moves))
            self.reports.keep(reported)
            raise

    def _settled(self, moves: list[Move], codes: str) -> None:
        for move, code in zip(moves, codes, strict=True):
            if code == Settled.DONE and move.destination is Destination.DEAD:
                self._on_dead(move)
        self._announce_dead()

    def _announce_dead(self) -> None:
        """Call `on_dead` for the messages that died on their arrival: expired or undecodable ones."""
        while True:
            try:
                move = self.steps.arrivals.buried.pop()
            except IndexError:
                return
            self._on_dead(move)
