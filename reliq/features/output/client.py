# Generated from reliq/features/output/aio.py by tools/generate_sync.py: do not edit
"""What a queue has of the output of its messages."""

from collections.abc import Iterator

from reliq.contract.values import Duration
from reliq.features.output.model import Chunk
from reliq.features.output.steps import Reading
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class OutputReads:
    """What a queue has of what its handlers emit while they run."""

    _store: Store
    _steps: QueueSteps

    def output(self, id: str, *, after: str = "", follow: bool = True, wait: Duration = "1m") -> Iterator[Chunk]:
        """Yield the chunks that a message's handler emits, until the message has ended.

        `after`: the id of a chunk read before. `follow=False`: only those that are there. `wait`: for the first one.
        """
        reading = Reading(self._steps.homes, id, after, follow=follow, wait=wait)
        while chunk := self._store.run_apart(reading.next()):
            yield chunk
