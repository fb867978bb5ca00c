"""The store of a service: however many requests run at once, Redis sees a bounded number of connections."""

import asyncio
from typing import TypeVar

from reliq.aiostore import AioLink, AioStore
from reliq.ops import Steps

T = TypeVar("T")


class BoundedStore(AioStore):
    """At most `connections` runs at once; who brings a link of their own is not counted."""

    def __init__(self, url: str, connections: int, *, allow_eviction: bool, timeout: float) -> None:
        super().__init__(url, allow_eviction=allow_eviction, timeout=timeout)
        self._free = asyncio.Semaphore(connections)

    async def run(self, steps: Steps[T], link: AioLink | None = None, timeout: float | None = None) -> T:
        if link is not None:
            return await super().run(steps, link, timeout)
        async with self._free:
            return await super().run(steps, None, timeout)
