"""What a queue has of the output of its messages."""

from collections.abc import AsyncIterator

from reliq.contract.values import Duration
from reliq.features.output.model import Chunk
from reliq.features.output.steps import Reading
from reliq.protocol.queue import QueueSteps
from reliq.transport.aiostore import AioStore


class OutputReads:
    """What a queue has of what its handlers emit while they run."""

    _store: AioStore
    _steps: QueueSteps

    async def output(
        self, id: str, *, after: str = "", follow: bool = True, wait: Duration = "1m"
    ) -> AsyncIterator[Chunk]:
        """Yield the chunks that a message's handler emits, until the message has ended.

        `after`: the id of a chunk read before. `follow=False`: only those that are there. `wait`: for the first one.
        """
        reading = Reading(self._steps.homes, id, after, follow=follow, wait=wait)
        while chunk := await self._store.run_apart(reading.next()):
            yield chunk
