"""Long polls: a receive that waits ends when its client goes away, and when the endpoint stops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from reliq import aio


class Waits:
    """The receives of the process that wait for messages."""

    def __init__(self) -> None:
        self._draining = asyncio.Event()
        self.waiting = 0  #: receives that wait now

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """Answer all who wait, and let no one wait any more."""
        self._draining.set()

    async def receive(
        self, queue: aio.Queue, wait: int, gone: Callable[[], Awaitable[None]], **options: Any
    ) -> list[Any]:
        """Receive as `Queue.receive`. What comes for a client that is gone is visible again at once.

        A receive that is cancelled goes on until it has nothing to give back; no caller waits for that.
        """
        if not wait or self.draining:
            return await queue.receive(**options)
        receiving = asyncio.ensure_future(queue.receive(wait=wait, **options))
        ends = [asyncio.ensure_future(gone()), asyncio.ensure_future(self._draining.wait())]
        self.waiting += 1
        try:
            await asyncio.wait((receiving, *ends), return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                return receiving.result()
            return []
        finally:
            self.waiting -= 1
            for one in (receiving, *ends):
                one.cancel()
