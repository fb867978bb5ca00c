"""The delayed messages of a queue; see reliq.client.delayed."""

from reliq.model.keys import QueueKeys
from reliq.protocol.delayed import DelayedPage, delayed_page
from reliq.transport.aiostore import AioStore


class Delayed:
    """The delayed messages of one queue; see Delayed."""

    def __init__(self, store: AioStore, keys: QueueKeys) -> None:
        self._store = store
        self._keys = keys

    async def list(self, *, limit: int = 50, after: str | None = None, failed: bool = False) -> DelayedPage:
        return await self._store.run(delayed_page(self._keys, limit, after, failed))
