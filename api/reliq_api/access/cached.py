"""A cache for values in Redis that every request needs; refreshed in the background."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from reliq.errors import RedisUnavailable, ReliqError
from reliq_api.background import Background

log = logging.getLogger("reliq.api")

T = TypeVar("T")


class Cached(Generic[T]):
    """A value at most twice `every` seconds old. It is refreshed before it expires, so frequent readers never wait."""

    def __init__(self, name: str, fetch: Callable[[], Awaitable[T]], every: float, background: Background) -> None:
        self._name = name
        self._background = background
        self._fetch = fetch
        self._every = every
        self._known: tuple[T, float] | None = None
        self._error: ReliqError = RedisUnavailable("nothing was fetched yet")
        self._fetching: asyncio.Task[None] | None = None

    async def get(self) -> T:
        """Return the value; raises the error of the latest fetch if the known value is too old."""
        if (known := self._known) is not None:
            age = time.monotonic() - known[1]
            if age < self._every:
                return known[0]
            if age < 2 * self._every:
                self._begin()
                return known[0]
        await asyncio.shield(self._begin())
        if self._known is None or self._known is known:
            raise self._error
        return self._known[0]

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            value = await self._fetch()
            self._known = value, time.monotonic()
            self._background.mark(self._name, failed=False)
        except ReliqError as error:
            self._error = error
        except Exception as error:
            self._error = RedisUnavailable(f"the {self._name} could not be read: {type(error).__name__}")
            log.exception("the %s could not be read from Redis", self._name)
            self._background.mark(self._name, failed=True)
        finally:
            self._fetching = None
