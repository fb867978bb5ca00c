# Generated from reliq/features/flows/aio.py by tools/generate_sync.py: do not edit
"""Flows: messages of which some wait until others are handled."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from reliq.client.queue import Queue
from reliq.contract import values
from reliq.contract.keywords import PublishOptions
from reliq.contract.values import check_id
from reliq.features.flows.model import FLOW, FlowMessage, FlowProgress, OnFailure, Plan, options_of
from reliq.features.flows.opened import Parent
from reliq.features.flows.sending import Sending, find
from reliq.features.flows.steps import cancelled_queues, note_cancelled, open_flows, progress
from reliq.model.message import Message
from reliq.model.outgoing import Body, NewMessage
from reliq.protocol.application import Application
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class Flow:
    """A flow of messages: what `Reliq.flow` returns.

        with app.flow() as flow:
            parts = [flow.send("parts", part) for part in cut(order)]
            flow.send("orders", {"assemble": order}, after=parts)

    All are sent at the end of the block; if it raises, none is. A message waits in its queue, counted as `waiting`,
    until all in `after` have been handled.
    """

    def __init__(self, store: Store, queue: Callable[[str], QueueSteps], parent: Parent | None = None) -> None:
        self._store = store
        self._queue = queue
        self.parent = parent
        self._plan = Plan()

    @property
    def id(self) -> str:
        """The id of the flow, for `Reliq.flow_progress`."""
        return self._plan.id

    def send(
        self,
        queue: str,
        body: Body | NewMessage,
        *,
        after: Iterable[FlowMessage] | FlowMessage = (),
        on_failure: OnFailure = "fail",
        **options: Unpack[PublishOptions],
    ) -> FlowMessage:
        """Add a message, which waits for those of `after`, also of other queues.

        `on_failure`: what it does when one of these fails: "fail", "skip" or "run". Raises InvalidSetting, also
        outside of the block, and InvalidMessage.
        """
        self._plan.check_open()
        return self._plan.add(queue, self._queue(queue).prepared(body, options_of(options)), after, on_failure)

    def __enter__(self) -> Self:
        self._plan.begin()
        if self.parent is not None:
            self._store.run(find(self._plan, self.parent))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._plan.ending(given_up=error is not None) as to_be_sent:
            if to_be_sent:
                self._store.run(Sending(self._plan, self._queue, self.parent).steps())


class FlowCalls(Application):
    """What an application has of flows."""

    store: Store
    queue: Callable[[str], Queue]

    def flow(self, *, parent: Message | None = None, name: str = "flow") -> Flow:
        """Return a flow, to be opened as a context; see Flow.

        `parent`: the message whose handler opens it; those behind it wait for the flow too. `name` tells several apart.
        """
        return Flow(self.store, self._queue_steps, None if parent is None else Parent.of_handler(parent, name))

    def flow_progress(self, id: str) -> FlowProgress | None:
        """Return the progress of a flow, with its messages; None if it does not exist, or ended over an hour ago."""
        return self.store.run(progress(check_id(id)))

    def flows(self, limit: int = 100) -> list[FlowProgress]:
        """Return the flows that have not ended, oldest first, without their messages."""
        return self.store.run(open_flows(values.whole(limit, "limit", 1, 10_000)))

    def cancel_flow(self, id: str) -> bool:
        """Cancel the messages of a flow that have not ended; return whether it was open. See `Queue.cancel_many`.

        Once it has begun, a monitor brings it to its end.
        """
        queues = self.store.run(cancelled_queues(check_id(id)))
        for flow, name in queues:
            self.queue(name).cancel_many(headers={FLOW: flow})
        self.store.run(note_cancelled(queues))
        return bool(queues)
