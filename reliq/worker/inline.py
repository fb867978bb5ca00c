"""The loop of a worker with one thread: it runs its handler itself."""

import contextlib
import time
from collections.abc import Iterator

from reliq.model.message import Message
from reliq.worker.exchange import Exchange
from reliq.worker.loop import Shared
from reliq.worker.prefetch import MOST, Prefetch
from reliq.worker.runner import Run, Runner

_TURN_LOOK = 0.5  #: seconds between two checks of the lease while another queue's handler runs


class InlineLoop:
    """Runs its handler in the loop's own thread: the fast path for sync handlers with one thread.

    With quick handlers and a long queue, the next batch is requested before this one runs, and the one after it before
    the reply is read: Redis and this process work at the same time.
    """

    def __init__(self, exchange: Exchange, runner: Runner, shared: Shared) -> None:
        self.exchange = exchange
        self.runner = runner
        self.stopping = False
        self._prefetch = Prefetch(1)
        self._shared = shared
        self._shared.takers += 1
        self._measurements = shared.measurements if runner.handler.measured else None
        self._flowing = False  #: the latest batch had the maximum size

    def step(self) -> None:
        """Settle the previous batch, claim the next one and run it; wait for a message if there is none."""
        self._be_registered()  # before its turn: broadcasts must find their queue meanwhile
        with self._turn():
            claimed = self._next_batch()
            self.exchange.add_unstarted(claimed)
            self._run_unstarted()
        if not claimed and not self.stopping:
            # Outside the turn, so that the loop of another queue can run its handler meanwhile.
            claimed = self.exchange.wait(1)  # the call that settles it claims further ones
            if claimed:
                self.exchange.add_unstarted(claimed)  # before the turn: the watchdog hands it back if that takes long
                with self._turn():
                    self._run_unstarted()

    def busy(self) -> bool:
        """A handler runs only in `step`."""
        return False

    def _be_registered(self) -> None:
        if not self.stopping:
            self.exchange.be_registered()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the turn to run handlers; this consumer stays registered meanwhile."""
        while not self._shared.turn.acquire(timeout=_TURN_LOOK):
            self._be_registered()
        try:
            yield
        finally:
            self._shared.turn.release()

    def _next_batch(self) -> list[Message]:
        """Return the next batch, requested ahead or now; each call settles what has run before it."""
        exchange = self.exchange
        messages: list[Message] = []
        flowing, self._flowing = self._flowing, False
        if flowing and self._may_ask_ahead():
            exchange.begin(self._limit())
        while exchange.under_way and not messages:
            messages = exchange.complete()
        if not messages:
            messages = exchange.settle_and_claim(0 if self.stopping else self._limit())
        # Loops that take turns request nothing ahead: it would wait here for the turn.
        self._flowing = len(messages) >= MOST and self._shared.takers == 1
        if self._flowing and not exchange.under_way and self._may_ask_ahead():
            exchange.begin(self._limit())
        return messages

    def _may_ask_ahead(self) -> bool:
        steps = self.exchange.steps
        return not (self.stopping or steps.to_be_verified or steps.limits.apply)

    def _limit(self) -> int:
        """Return how many messages to claim; one in a cycle: more would wait here and lose their turn."""
        return 1 if self.exchange.steps.cyclic else self._prefetch.limit()

    def _run_unstarted(self) -> None:
        """Run the claimed messages in their order; hand them back if this worker stops."""
        exchange, unstarted, perform = self.exchange, self.exchange.unstarted, self.runner.perform
        if self.stopping:
            exchange.complete_all()
            exchange.relieve()
            return
        started, runs = time.monotonic(), 0
        ran: list[Run] = []
        while unstarted and not self.stopping:
            try:
                message = unstarted.popleft()
            except IndexError:  # the watchdog was faster
                break
            if run := perform(message):
                ran.append(run)
            runs += 1
            if message.redelivered:
                self._measure(ran)
                exchange.complete_all()
                exchange.settle_and_claim(0)  # settled before the next one starts: see reclaim
        if runs:
            self._prefetch.note(time.monotonic() - started, runs)
            self._measure(ran)

    def _measure(self, ran: list[Run]) -> None:
        """Measure the runs: each ended when the next one started, the last one just now."""
        if self._measurements is not None and ran:
            queue, clock_offset = self.runner.handler.queue, self.exchange.steps.clock_offset
            self._measurements.ran_in_turn(queue, ran, time.monotonic(), clock_offset)
        ran.clear()
