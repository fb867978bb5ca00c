"""A queue's cycle; see reliq.client.cycle."""

from reliq.protocol.cycle import CycleSteps
from reliq.transport.aiostore import AioStore


class Cycle:
    """The members of a queue that are visited in turn; see reliq.Cycle."""

    def __init__(self, store: AioStore, steps: CycleSteps) -> None:
        self._store = store
        self._steps = steps

    async def add(self, *members: str) -> int:
        return await self._store.run(self._steps.add(members))

    async def remove(self, *members: str) -> int:
        return await self._store.run(self._steps.remove(members))

    async def members(self) -> list[str]:
        return await self._store.run(self._steps.members())
