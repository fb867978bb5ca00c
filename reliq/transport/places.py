"""Places for the calls of an event loop that run at once, each on a connection of its own."""

import asyncio
from collections import deque


class Places:
    """So many places. A call that finds none free waits behind those that came before it."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take(self) -> bool:
        """Take a place if one is free."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def taken(self, within: float) -> bool:
        """Wait for a place; return whether one came in time."""
        given = asyncio.get_running_loop().create_future()
        self._waiting.append(given)
        try:
            await asyncio.wait((given,), timeout=within)
        except asyncio.CancelledError:
            if given.done():
                self.leave()
            raise
        finally:
            if not given.done():
                self._waiting.remove(given)
        return given.done()

    def leave(self) -> None:
        """Give a place to the call that has waited for longest."""
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
