"""Waiting for several homes at once. Written by hand: here a task waits, in `reliq.client.home_waiter` a thread."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from reliq.transport.aiostore import AioStore
from reliq.transport.key_waiter import KeyWaiter, left_to_others


class HomeWaiter(KeyWaiter):
    """Waits until one of several homes may have messages."""

    def __init__(self, store: AioStore) -> None:
        super().__init__(store)
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def wait(self, keys: Sequence[str], seconds: float, unwatched: float, in_vain: int) -> bool:
        """Wait until one of the keys may exist, at most so many seconds; return whether that was told.

        `unwatched`: seconds to wait at most where the server does not tell. `in_vain`: how often in a row that was
        told, and then others were faster: they are left a moment, which doubles.
        """
        if in_vain:
            await asyncio.sleep(min(seconds, unwatched, left_to_others(in_vain)))
        self._woken.clear()
        watched = self._watch(keys)
        try:
            return await asyncio.wait_for(self._woken.wait(), seconds if watched else min(seconds, unwatched))
        except TimeoutError:
            return False

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self._woken.set)
