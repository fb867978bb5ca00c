"""The loop of a worker with one thread: it runs its handler itself."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from reliq.model.message import Message
from reliq.worker.loop import Loop, Run
from reliq.worker.prefetch import MOST

_TURN_LOOK = 0.5  #: seconds between two checks of the lease while another queue's handler runs


class InlineLoop(Loop):
    """Runs its handler in the loop's own thread: the fast path for sync handlers with one thread.

    With quick handlers and a long queue, the next batch is requested before this one runs, and the one after it before
    the reply is read: Redis and this process work at the same time.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._shared.takers += 1
        self._flowing = False  #: the latest batch had the maximum size

    def _step(self) -> None:
        self._be_registered()  # before its turn: broadcasts must find their queue meanwhile
        if not self._work(None):
            # Outside the turn, so that the loop of another queue can run its handler meanwhile.
            messages = self._wait(1, self._block)  # the exchange that settles it claims further ones
            if messages:
                self.progress_at = time.monotonic()
                self.unstarted.extend(messages)
                self._work(messages)

    def _work(self, messages: list[Message] | None) -> bool:
        """Run a batch, claimed here if none is given; return whether there was one."""
        with self._turn():
            if messages is None:
                messages = self._next_batch()
                self.progress_at = time.monotonic()
                self.unstarted.extend(messages)
            if self.stopping:
                self._gather()
                self.relieve(self._connection)
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

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the turn to run handlers; this consumer stays registered meanwhile."""
        while not self._shared.turn.acquire(timeout=_TURN_LOOK):
            self._be_registered()
        try:
            yield
        finally:
            self._shared.turn.release()

    def _be_registered(self) -> None:
        if not self.holdings.alive and not self.stopping:
            self._store.run(self.holdings.be_registered(), self._connection, timeout=0)

    def _next_batch(self) -> list[Message]:
        messages: list[Message] = []
        flowing, self._flowing = self._flowing, False
        if flowing and not self.stopping and not self.holdings.to_be_verified:
            self._ask(self._most_to_hold())
        while self._asked and not messages:
            messages = self._collect()
        if not messages:
            messages = self._exchange(0 if self.stopping else self._most_to_hold())
        # Loops that take turns request nothing ahead: it would wait here for the turn.
        self._flowing = len(messages) >= MOST and self._shared.takers == 1
        if self._flowing and not self._asked and not self.stopping and not self.holdings.to_be_verified:
            self._ask(self._most_to_hold())
        return messages

    def _measure(self, ran: list[Run]) -> None:
        """Measure the runs: each ended when the next one started, the last one just now."""
        if self._measurements is not None and ran:
            self._measurements.ran_in_turn(self.handler.queue, ran, time.monotonic(), self.holdings.clock_offset)
        ran.clear()
