# Generated from reliq/aio/batch.py by tools/generate_sync.py: do not edit
"""Batches of messages, with one message when all of them have ended."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from reliq import forks
from reliq.contract.keywords import BatchOptions, MessageOptions
from reliq.model.batch import BatchProgress, Target
from reliq.model.outgoing import Body, NewMessage
from reliq.protocol.batches import BatchSteps, progress
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class Batch:
    """A batch of messages: what `Reliq.batch` returns.

        with app.batch(on_done=("reports", {"month": 11})) as batch:
            batch.send_many("orders", orders)

    Its messages are counted as they are sent and as they end, in the same steps. When the block has ended and all of
    them are handled, dead or cancelled, a monitor sends `on_done` once, or `on_dead` if some are dead; it has the
    headers batch, batch-handled, batch-dead and batch-cancelled. A message that is tried again has not ended.
    If the block raises, nothing is sent at the end; the messages that were sent before stay.
    """

    def __init__(self, store: Store, steps: BatchSteps, queue: Callable[[str], QueueSteps]) -> None:
        self._store = store
        self._steps = steps
        self._queue = queue
        self._mark = forks.mark()

    @property
    def id(self) -> str:
        return self._steps.id

    def send(self, queue: str, body: Body | NewMessage, **options: Unpack[MessageOptions]) -> str:
        """Send a message of this batch, as `Queue.send` does; raises InvalidSetting outside of the block."""
        steps = self._queue(queue)
        messages = self._steps.marked([steps.prepared(body, options)])
        self._store.run(self._steps.enlist(queue))
        (sent,) = self._store.run(steps.send_many(messages))
        return sent

    def send_many(self, queue: str, bodies: Iterable[Body | NewMessage], **options: Unpack[BatchOptions]) -> list[str]:
        """Send messages of this batch, as `Queue.send_many` does; raises InvalidSetting outside of the block."""
        steps = self._queue(queue)
        messages = self._steps.marked(steps.prepared_many(bodies, options))
        self._store.run(self._steps.enlist(queue))
        return self._store.run(steps.send_many(messages))

    def batch(self, *, on_done: Target | None = None, on_dead: Target | None = None) -> "Batch":
        """Return a batch that this one waits for; to be opened in the block of this one."""
        return Batch(self._store, BatchSteps(on_done, on_dead, self.id), self._queue)

    def progress(self) -> BatchProgress | None:
        """Return how far the batch is; None if it has ended."""
        return self._store.run(progress(self.id))

    def __enter__(self) -> Self:
        self._store.run(self._steps.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mark == forks.mark():  # a forked child closes nothing by leaving the block
            self._store.run(self._steps.close(abandon=error is not None))

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"
