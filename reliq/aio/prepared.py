"""A prepared message; see reliq.client.prepared."""

from types import TracebackType
from typing import Self

from reliq.errors import ReliqError
from reliq.model.element import check_id
from reliq.protocol.prepared import DecisionOptions, PreparedSteps, not_rolled_back
from reliq.transport.aiostore import AioStore


class Prepared:
    """The same for asyncio: `async with await orders.prepare(...) as handle`; see Prepared."""

    def __init__(
        self, store: AioStore, steps: PreparedSteps, identity: str, care: DecisionOptions = DecisionOptions()
    ) -> None:
        self.id = check_id(identity)
        self._store = store
        self._steps = steps
        self._care = care
        self._decided = False

    async def commit(self) -> str:
        identity = await self._store.run(self._steps.commit(self.id, self._care))
        self._decided = True
        return identity

    async def rollback(self) -> None:
        await self._store.run(self._steps.rollback(self.id, self._care))
        self._decided = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._decided:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.rollback()
        except ReliqError as failure:
            error.add_note(not_rolled_back(self.id, failure))

    def __repr__(self) -> str:
        return f"<aio.Prepared {self.id}>"
