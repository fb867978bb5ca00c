"""The loop of a worker with one thread: it runs its handler itself."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from reliq.contract import values
from reliq.model.message import Message
from reliq.protocol.outcomes import released, undecodable
from reliq.worker.bodies import Bodies
from reliq.worker.exchange import QUARANTINE_PAUSE, Exchange
from reliq.worker.loop import PAUSED_LOOK, Shared
from reliq.worker.prefetch import MOST, Prefetch
from reliq.worker.runner import Run, Runner

_FULL = 0.9 * values.CLAIM_BYTES  #: bytes of the bodies of a batch that could not take more bytes
_TURN_LOOK = 0.5  #: seconds between two checks of the lease while another queue's handler runs


class InlineLoop:
    """Runs its handler in the loop's own thread: the fast path for sync handlers with one thread.

    With a long queue, and quick handlers or a distant Redis, the next batches are requested before this one runs, and
    a further one before a reply is read: Redis and this process work at the same time. With large bodies this goes on
    while a batch runs, and bodies arrive shortly before their messages start.
    """

    def __init__(self, exchange: Exchange, runner: Runner, shared: Shared) -> None:
        self.exchange = exchange
        self.runner = runner
        self.stopping = False
        exchange.steps.arrivals.reads_bodies = False
        self._bodies = Bodies(exchange, self._take_ahead)
        self._prefetch = Prefetch(1, exchange.trip)
        self._shared = shared
        self._measurements = shared.measurements if runner.handler.measured else None
        self._ahead = 0  #: calls to keep under way while a batch runs

    def step(self) -> bool:
        """Settle the previous batch, claim the next one and run it; rest or wait for a message if there is none."""
        if self.runner.paused and not self.stopping:
            self._pause()
            return False
        self._ensure_registered()  # before its turn: broadcasts must find their queue meanwhile
        with self._turn():
            self._take_next_batch()
            idle = not self.exchange.unstarted
            self._run_batch()
        if not idle or self.stopping:
            return False
        if self._shared.rest(self):
            return True
        # Outside the turn, so that the loop of another queue can run its handler meanwhile.
        claimed = self.exchange.wait(1)  # the call that settles it claims further ones
        if claimed:
            self._add(claimed)  # before the turn: the watchdog hands it back if that takes long
            with self._turn():
                self._run_batch()
        return False

    def _pause(self) -> None:
        """Hand back what has not started, and settle what has ended."""
        self._ensure_registered()
        self.exchange.complete_all()
        self.exchange.relieve()
        time.sleep(PAUSED_LOOK)

    def busy(self) -> bool:
        """A handler runs only in `step`."""
        return False

    def _ensure_registered(self) -> None:
        if not self.stopping:
            self.exchange.ensure_registered()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the turn to run handlers; this consumer stays registered meanwhile."""
        while not self._shared.turn.acquire(timeout=_TURN_LOOK):
            self._ensure_registered()
        try:
            yield
        finally:
            self._shared.turn.release()

    def _take_next_batch(self) -> None:
        """Take the next batch, claimed ahead or now; each call settles what has run before it."""
        exchange = self.exchange
        if not exchange.unstarted and self._may_ask_ahead():
            exchange.begin(self._limit())
        while exchange.under_way and not exchange.unstarted:
            self._add(exchange.complete())
        if not exchange.unstarted:
            self._add(exchange.settle_and_claim(0 if self.stopping else self._limit()))
        while exchange.under_way < (1 if self._bodies.under_way else self._ahead) and self._may_ask_ahead():
            exchange.begin(self._limit())

    def _complete_all(self) -> None:
        while self.exchange.under_way:
            self._add(self.exchange.complete())

    def _add(self, messages: Sequence[Message]) -> None:
        """Add claimed messages to those that start next."""
        if not self.exchange.unstarted:
            self._bodies.expect_nothing()
        self.exchange.add_unstarted(messages)
        self._bodies.expect(messages)
        # Loops that take turns request nothing ahead: it would wait here for the turn.
        self._ahead = self._calls_ahead(messages) if len(self._shared.working) <= 1 else 0

    def _calls_ahead(self, messages: Sequence[Message]) -> int:
        """Return how many calls to keep under way after a batch: none unless most likely further messages are ready."""
        count, latest = len(messages), self._prefetch.latest
        if count >= MOST or (count < latest and sum(message.size for message in messages) >= _FULL):
            return 2  # Redis sends a long reply in parts, and turns to the next call before the last of them
        waits = count >= latest and self._prefetch.waits_for_trips
        return 1 if waits and not self.exchange.steps.arrivals.cyclic else 0

    def _take_ahead(self) -> None:
        """Take the batch that was claimed ahead while this one runs, so that Redis sends bodies without a pause."""
        exchange = self.exchange
        if exchange.arrived or (exchange.under_way and not self._bodies.under_way):
            if self._may_ask_ahead():
                exchange.begin(self._limit())
            self._add(exchange.complete())

    def _may_ask_ahead(self) -> bool:
        steps = self.exchange.steps
        return self._ahead > 0 and not (self.stopping or steps.to_be_verified or steps.limits.apply)

    def _limit(self) -> int:
        """Return how many messages to claim; one in a cycle: more would wait here and lose their turn."""
        return 1 if self.exchange.steps.arrivals.cyclic else self._prefetch.limit()

    def _run_batch(self) -> None:
        """Run the claimed messages in their order; hand them back if this worker stops."""
        exchange, unstarted, perform = self.exchange, self.exchange.unstarted, self.runner.perform
        ready = self._bodies.opened
        if self.stopping:
            exchange.complete_all()
            exchange.relieve()
            return
        started, runs = time.monotonic(), 0
        ran: list[Run] = []
        batch = len(unstarted)  # what is claimed ahead meanwhile is the next one
        while runs < batch and unstarted and not (self.stopping or self.runner.paused):
            try:
                message = unstarted.popleft()
            except IndexError:  # the watchdog was faster
                break
            opened: Message | None = message
            if message.reference and (opened := ready.pop(message.element, None)) is None:
                self._measure(ran)  # the handler before does not take the time that Redis takes
                opened = self._open(message)
            if message.redelivered and opened is not None:
                self._try(message, opened, ran)
            elif opened is not None and (run := perform(opened)):
                run.message = message  # without its body
                ran.append(run)
            runs += 1
        if runs:
            self._prefetch.note(time.monotonic() - started, runs)
            self._measure(ran)

    def _try(self, message: Message, opened: Message, ran: list[Run]) -> None:
        """Run a redelivered message and settle it, or put it back for now if loops of pools have others in trial."""
        trials, exchange = self._shared.trials, self.exchange
        if not (count := trials.begin(message)):
            exchange.move(released(message, QUARANTINE_PAUSE))
            return
        exchange.at_a_time[message.element] = count
        try:
            if run := self.runner.perform(opened):
                run.message = message
                ran.append(run)
            self._measure(ran)
            self._complete_all()
            exchange.settle_and_claim(0)
        finally:
            trials.end(message.element)

    def _open(self, message: Message) -> Message | None:
        """Read the next bodies and return the message with its own; without a body it becomes a dead letter."""
        try:
            opened = self._bodies.open(message)
        except BaseException:
            self.exchange.unstarted.appendleft(message)
            raise
        if self.stopping:
            self.exchange.unstarted.appendleft(message)
            return None
        if opened is None and not message.lost:
            self.exchange.move(undecodable(message.element))
        return opened

    def _measure(self, ran: list[Run]) -> None:
        """Measure the runs: each ended when the next one started, the last one just now."""
        if self._measurements is not None and ran:
            queue, clock_offset = self.runner.handler.queue, self.exchange.steps.arrivals.clock_offset
            self._measurements.ran_in_turn(queue, ran, time.monotonic(), clock_offset)
        ran.clear()
