"""Batches of messages, with one message when all of them have ended."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, Unpack

from reliq import forks
from reliq.aio.unbroken import bring, finish
from reliq.contract import values
from reliq.contract.keywords import BatchOptions, MessageOptions
from reliq.features.batches.model import BatchProgress, Target
from reliq.features.batches.steps import BatchSteps, open_batches, progress
from reliq.model.outgoing import Body, NewMessage
from reliq.protocol.application import Application
from reliq.protocol.queue import QueueSteps
from reliq.runtime.blocks import AsyncBlock
from reliq.transport.aiostore import AioStore


class Batch(AsyncBlock):
    """A batch of messages: what `Reliq.batch` returns.

        async with app.batch(on_done=("reports", {"month": 11})) as batch:
            await batch.send_many("orders", orders)

    When the block has ended and all messages are handled, dead or cancelled, a monitor sends `on_done` once, or
    `on_dead` if some are dead, with the headers batch, batch-handled, batch-dead and batch-cancelled. A message that
    waits for a retry has not ended. If the block raises, nothing is sent at the end; the messages that were sent stay.
    """

    def __init__(self, store: AioStore, steps: BatchSteps, queue: Callable[[str], QueueSteps]) -> None:
        self._store = store
        self._steps = steps
        self._queue = queue
        self._mark = forks.mark()

    @property
    def id(self) -> str:
        return self._steps.id

    async def send(self, queue: str, body: Body | NewMessage, **options: Unpack[MessageOptions]) -> str:
        """Send a message of this batch, as `Queue.send` does; raises InvalidSetting outside of the block."""
        steps = self._queue(queue)
        messages = self._steps.marked([steps.prepared(body, options)])
        await self._store.run(self._steps.enlist(queue))
        (sent,) = await self._store.run(steps.send_many(messages))
        return sent

    async def send_many(
        self, queue: str, bodies: Iterable[Body | NewMessage], **options: Unpack[BatchOptions]
    ) -> list[str]:
        """Send messages of this batch, as `Queue.send_many` does; raises InvalidSetting outside of the block."""
        steps = self._queue(queue)
        messages = self._steps.marked(steps.prepared_many(bodies, options))
        await self._store.run(self._steps.enlist(queue))
        return await self._store.run(steps.send_many(messages))

    def batch(self, *, on_done: Target | None = None, on_dead: Target | None = None) -> "Batch":
        """Return a batch that this one waits for; to be opened in the block of this one."""
        return Batch(self._store, BatchSteps(on_done, on_dead, self._steps.versions, self.id), self._queue)

    async def progress(self) -> BatchProgress | None:
        """Return the progress of the batch; None if it has ended."""
        return await self._store.run(progress(self.id))

    async def __aenter__(self) -> Self:
        await bring(self._store.run(self._steps.open()), self._give_up)
        return self

    async def _give_up(self, _: None) -> None:
        """End a batch whose block does not begin."""
        await self._store.run(self._steps.close(abandon=True))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._mark == forks.mark():  # a forked child closes nothing by leaving the block
            await finish(self._store.run(self._steps.close(abandon=error is not None)))

    def __repr__(self) -> str:
        return f"<aio.Batch {self.id}>"


class BatchCalls(Application):
    """What an application has of batches."""

    store: AioStore

    def batch(self, *, on_done: Target | None = None, on_dead: Target | None = None) -> Batch:
        """Return a batch, to be opened as a context: its messages are counted, and one message follows the last one.

        `on_done`, `on_dead`: a queue and a body, or a NewMessage with headers; see Batch. Raises InvalidMessage.
        """
        return Batch(self.store, BatchSteps(on_done, on_dead, self.handlers.versions), self._queue_steps)

    async def batch_progress(self, id: str) -> BatchProgress | None:
        """Return the progress of a batch; None if it has ended, or never existed."""
        return await self.store.run(progress(id))

    async def batches(self, *, limit: int = 100) -> list[BatchProgress]:
        """Return the batches that have not ended, oldest first."""
        return await self.store.run(open_batches(values.whole(limit, "limit", 1, 10_000)))
