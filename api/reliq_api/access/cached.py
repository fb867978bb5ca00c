"""A cache for values in Redis that every request needs; refreshed in the background."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from reliq.errors import RedisUnavailable, ReliqError
from reliq.runtime.looking import is_away
from reliq_api.background import Background

log = logging.getLogger("reliq.api")

T = TypeVar("T")

KEYS_EVERY = 1.0  #: seconds; a revoked key is refused after at most twice this time
KEYS_KEPT = 600.0  #: seconds for which the keys that were read last are valid while the node that has them is away

_PATIENCE = 1.0  #: seconds to wait for a fetch if a kept value could be used instead
_AGAIN = 0.25  #: the same, after a fetch that failed because Redis was away


class Cached(Generic[T]):
    """A value at most twice `every` seconds old. It is refreshed before it expires, so frequent readers never wait.

    While Redis, or the cluster node that has the value, is away, the last value read is used for `kept` seconds.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[], Awaitable[T]],
        every: float,
        background: Background,
        kept: Callable[[T], float],
    ) -> None:
        self._name = name
        self._background = background
        self._fetch = fetch
        self._every = every
        self._kept = kept
        self._known: tuple[T, float] | None = None
        self._error: ReliqError = RedisUnavailable("nothing was fetched yet")
        self._away_at = float("-inf")  #: when the latest fetch ended without an answer
        self._began_at = 0.0
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
        await self._wait_for_fetch(known)
        if self._known is not None and (self._known is not known or self._may_keep(known)):
            return self._known[0]
        raise self._error.with_traceback(None)  # that of who was refused before would keep its request

    def _may_keep(self, known: tuple[T, float] | None) -> bool:
        """Whether the value that was read last may be used although it is old: no newer one can be read."""
        return (self._fetching is not None or self._away) and self._is_kept(known)

    def _is_kept(self, known: tuple[T, float] | None) -> bool:
        """Whether the value that was read last is valid while Redis is away."""
        return known is not None and time.monotonic() - known[1] < self._kept(known[0])

    @property
    def _away(self) -> bool:
        return self._away_at > float("-inf")

    async def _wait_for_fetch(self, known: tuple[T, float] | None) -> None:
        """Wait for a fetch to end; only briefly if a kept value can be used, or an error names the node."""
        node_away = self._away and bool(self._error.node)
        brief = self._is_kept(known) or node_away
        if brief and self._fetching is None and time.monotonic() - self._away_at < self._every:
            return
        fetching = self._begin()
        if not brief:
            await asyncio.shield(fetching)
            return
        patience = _AGAIN if self._away else _PATIENCE
        rest = self._began_at + patience - time.monotonic()
        if rest > 0:
            await asyncio.wait([fetching], timeout=rest)

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._began_at = time.monotonic()
            self._fetching = self._background.fetch(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        try:
            value = await self._fetch()
            self._known = value, time.monotonic()
            self._away_at = float("-inf")
            self._background.mark(self._name, failed=False)
        except ReliqError as error:
            self._error = error
            self._away_at = time.monotonic() if is_away(error) else float("-inf")
        except Exception as error:
            self._away_at = float("-inf")
            self._error = RedisUnavailable(f"the {self._name} could not be read: {type(error).__name__}")
            log.exception("the %s could not be read from Redis", self._name)
            self._background.mark(self._name, failed=True)
        finally:
            self._fetching = None
