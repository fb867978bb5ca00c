"""Results over HTTP, for clients that wait."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from reliq.features.results.steps import stored_result
from reliq.transport.aiostore import AioStore
from reliq_api.background import Background
from reliq_api.consume.homes import HomesOf

Gone = Callable[[], Coroutine[Any, Any, None]]  #: ends when the client has disconnected


class Results:
    """All who wait for results in this process."""

    def __init__(self, store: AioStore, background: Background, homes: HomesOf) -> None:
        self._store = store
        self._homes = homes
        self._draining = asyncio.Event()

    async def get(self, queue: str, identity: str, wait: float, gone: Gone) -> bytes:
        """Return the stored result of a message. Raises HandlerFailed, and NoResult if there is none: after `wait`
        seconds, when the service stops, or when the client disconnects (`gone`).
        """
        homes = self._homes(queue)
        if wait:
            reading = asyncio.create_task(self._store.run_apart(stored_result(homes, identity, wait)))
            enough = [asyncio.create_task(one) for one in (gone(), self._draining.wait())]
            try:
                await asyncio.wait([reading, *enough], return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    return reading.result()
            finally:
                for task in (reading, *enough):
                    task.cancel()
                await asyncio.gather(reading, *enough, return_exceptions=True)  # else asyncio logs what they raise
        return await self._store.run(stored_result(homes, identity, 0))

    def drain(self) -> None:
        """Answer all now, because the service stops."""
        self._draining.set()
