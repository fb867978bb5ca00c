"""Topics: which queues get what is published."""

from reliq.protocol.topics import Binding, TopicStats, TopicSteps
from reliq.transport.aiostore import AioStore


class Topics:
    """The bindings of all queues, `app.topics`."""

    def __init__(self, store: AioStore, steps: TopicSteps) -> None:
        self._store = store
        self._steps = steps

    async def match(self, routing_key: str) -> list[str]:
        """Return the queues that would get a message with this key; nothing is sent."""
        return await self._store.run(self._steps.match(routing_key))

    async def list(self) -> list[Binding]:
        """Return every binding, sorted by queue."""
        return await self._store.run(self._steps.list())

    async def set_alternate(self, queue: str | None) -> None:
        """Set the queue for messages that no binding matches; None: they are counted as unroutable, and dropped."""
        await self._store.run(self._steps.set_alternate(queue))

    async def stats(self) -> TopicStats:
        """Return how many bindings there are, and how many messages matched none."""
        return await self._store.run(self._steps.stats())
