"""Places for the calls of an event loop that go on at once, each on a connection of its own."""

import asyncio
import time
from collections import deque


class Places:
    """So many places. A call that finds none free waits behind those that came before it."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()  #: since when, by time.monotonic()

    def take(self) -> bool:
        """Take a place if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def turn(self) -> bool:
        """Wait for a place; return whether there was one: False if the wait was given up."""
        given: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((time.monotonic(), given))
        try:
            return await given
        except asyncio.CancelledError:
            if not given.cancelled() and given.result():
                self.leave()
            raise

    def leave(self) -> None:
        """Give a place to the call that has waited for longest."""
        while self._waiting:
            _, given = self._waiting.popleft()
            if not given.done():  # it was cancelled
                given.set_result(True)
                return
        self._free += 1

    def give_up(self, seconds: float) -> None:
        """Give up those that have waited for so long."""
        began = time.monotonic() - seconds
        while self._waiting and self._waiting[0][0] <= began:
            _, given = self._waiting.popleft()
            if not given.done():
                given.set_result(False)
