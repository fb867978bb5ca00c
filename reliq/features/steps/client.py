# Generated from reliq/features/steps/aio.py by tools/generate_sync.py: do not edit
"""Signals for messages, and the messages that wait for one."""

from typing import Any

from reliq.contract import values
from reliq.features.steps.ops import Parked
from reliq.features.steps.parked import parked_in
from reliq.features.steps.signals import SignalSteps, give_anywhere
from reliq.protocol.application import Application
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class SignalCalls:
    """What a queue has of messages that wait for signals."""

    _store: Store
    _steps: QueueSteps

    def signal(self, id: str, name: str, value: Any = None) -> bool:
        """Give a signal to a message; return False if it has had it. One that comes early is kept, up to a day.

        Raises SignalRefused, InvalidMessage, OutcomeUnknown (then give it again: twice is once).
        """
        return self._store.run(SignalSteps(self._steps.homes).give(id, name, value))

    def parked(self, limit: int = 100) -> list[Parked]:
        """Return messages that wait for a signal."""
        return self._store.run(parked_in(self._steps.homes, values.whole(limit, "limit", 1, 10_000)))


class SignalEvery(Application):
    """What an application has of signals."""

    store: Store

    def signal(self, id: str, name: str, value: Any = None, *, queue: str | None = None) -> bool:
        """Do as `Queue.signal`; without `queue`, all queues are asked, and one that comes early is refused."""
        if queue is not None:
            return self.store.run(SignalSteps(self._queue_steps(queue).homes).give(id, name, value))
        return self.store.run(give_anywhere(self._steps_of, id, name, value))
