# Generated from reliq/features/flows/aio.py by tools/generate_sync.py: do not edit
"""Flows: messages of a queue of which some wait until others are handled."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from reliq.contract.keywords import MessageOptions
from reliq.features.flows.model import Member, Plan
from reliq.features.flows.steps import send
from reliq.model.outgoing import Body, NewMessage
from reliq.protocol.application import Application
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class Flow:
    """A flow of messages: what `Reliq.flow` returns.

        with app.flow() as flow:
            parts = [flow.send("orders", part) for part in cut(order)]
            flow.send("orders", {"assemble": order}, after=parts)

    All are sent at the end of the block; if it raises, none is. A message waits in the queue, counted as `waiting`,
    until all that it names are handled; a dead one holds it until it is redriven.
    """

    def __init__(self, store: Store, queue: Callable[[str], QueueSteps]) -> None:
        self._store = store
        self._queue = queue
        self._plan = Plan()

    def send(
        self, queue: str, body: Body | NewMessage, *, after: Iterable[Member] = (), **options: Unpack[MessageOptions]
    ) -> Member:
        """Add a message, which waits for those of `after`; raises InvalidSetting, InvalidMessage."""
        return self._plan.add(queue, self._queue(queue).prepared(body, options), after)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and self._plan.queue:
            self._store.run(send(self._queue(self._plan.queue), self._plan))


class FlowCalls(Application):
    """What an application has of flows."""

    store: Store

    def flow(self) -> Flow:
        """Return a flow, to be opened as a context; see Flow."""
        return Flow(self.store, self._queue_steps)
