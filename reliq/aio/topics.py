"""Topics; see reliq.client.topics."""

from reliq.protocol.topics import Binding, TopicStats, TopicSteps
from reliq.transport.aiostore import AioStore


class Topics:
    """The bindings of all queues; see reliq.Topics."""

    def __init__(self, store: AioStore, steps: TopicSteps) -> None:
        self._store = store
        self._steps = steps

    async def match(self, routing_key: str) -> list[str]:
        return await self._store.run(self._steps.match(routing_key))

    async def list(self) -> list[Binding]:
        return await self._store.run(self._steps.list())

    async def set_alternate(self, queue: str | None) -> None:
        await self._store.run(self._steps.set_alternate(queue))

    async def stats(self) -> TopicStats:
        return await self._store.run(self._steps.stats())
