"""Coalescing of single enqueues: those of one queue that arrive during a call go together in the next one.

A single message waits for no other. Together they need a fraction of the calls to Redis.
"""

import asyncio
from collections.abc import Sequence

from reliq import aio
from reliq.contract.values import MAX_BATCH
from reliq.errors import OutcomeUnknown, QueueFull, ReliqError
from reliq.model.outgoing import NewMessage
from reliq_api.background import Background

_BYTES_MOST = 1024 * 1024  #: of bodies in one call

Waiting = tuple[NewMessage, asyncio.Future[str]]


class Sends:
    """The single enqueues of this process."""

    def __init__(self, reliq: aio.Reliq, background: Background) -> None:
        self._reliq = reliq
        self._background = background
        self._queues: dict[str, QueueSends] = {}

    async def send(self, queue: str, message: NewMessage, durability: str | None = None) -> str:
        """Enqueue a message; return its id. Raises as aio.Queue.send does. With a durability it is sent alone."""
        if durability is not None:
            return await self._reliq.queue(queue).send(message, durability=durability)
        sends = self._queues.get(queue)
        if sends is None:
            sends = self._queues[queue] = QueueSends(self._reliq.queue(queue), self._background)
        return await sends.send(message)


class QueueSends:
    """The enqueues of one queue, with at most one call under way."""

    def __init__(self, queue: aio.Queue, background: Background) -> None:
        self._queue = queue
        self._background = background
        self._waiting: list[Waiting] = []
        self._busy = False  #: a call, or a task that sends waiting messages, is under way

    async def send(self, message: NewMessage) -> str:
        if self._busy:
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._waiting.append((message, answer))
            return await answer
        self._busy = True
        try:
            return await self._queue.send(message)
        finally:
            if self._waiting:
                self._background.start("sending", self._send_waiting)
            else:
                self._busy = False

    async def _send_waiting(self) -> None:
        while self._waiting:
            await self._send_together(self._next())
        self._busy = False

    def _next(self) -> list[Waiting]:
        size = count = 0
        for message, _ in self._waiting[:MAX_BATCH]:
            size += len(message.body)
            if count and size > _BYTES_MOST:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _send_together(self, batch: list[Waiting]) -> None:
        try:
            ids = await self._queue.send_many([message for message, _ in batch])
        except ReliqError as error:
            left = [one for position, one in enumerate(batch) if position not in error.enqueued]
            _succeed([batch[position] for position in error.enqueued], error.sent)
            if isinstance(error, QueueFull) and len(batch) > 1:  # there may be room for some
                for one in left:
                    await self._send_together([one])
            else:
                _fail(left, error)
        except BaseException as error:
            _fail(batch, OutcomeUnknown(f"the call was broken off: {type(error).__name__}"))
            raise
        else:
            _succeed(batch, ids)


def _succeed(batch: list[Waiting], ids: Sequence[str]) -> None:
    for (_, answer), identity in zip(batch, ids, strict=True):
        if not answer.done():
            answer.set_result(identity)


def _fail(batch: list[Waiting], error: ReliqError) -> None:
    """Fail each waiting enqueue with an error about its own message only."""
    for message, answer in batch:
        if not answer.done():
            unknown = isinstance(error, OutcomeUnknown)
            answer.set_exception(OutcomeUnknown(str(error), (message.id,)) if unknown else type(error)(str(error)))
