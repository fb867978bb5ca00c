"""Reads that block and are shared: who waits for a stream, in one event loop, needs one connection with all others."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from reliq.errors import RedisUnavailable
from reliq.ops.mention import Mention, Mentions

_REMEMBERED = 256  #: answers, for who begins to wait after they came

Read = Callable[[Mention], Awaitable[Mentions | None]]


class SharedRead:
    """The read of one stream, and who waits for it."""

    def __init__(self, first: Mention) -> None:
        self._mention = first
        self._waiting: dict[str, set[asyncio.Future[Mentions | None]]] = {}  #: by name
        self._latest: deque[tuple[tuple[int, ...], frozenset[str]]] = deque()
        self._known_from = _position(first.since)

    async def wait(self, wanted: Mention) -> Mentions | None:
        """Wait until an entry after its `since` mentions its name; an entry that is forgotten here may have done so."""
        since, name = _position(wanted.since), wanted.name
        if since < self._known_from or any(at > since and name in names for at, names in self._latest):
            return self._mention.since, [name]
        told: asyncio.Future[Mentions | None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, set()).add(told)
        try:
            async with asyncio.timeout(wanted.within):
                return await told
        except TimeoutError:
            return None
        finally:
            self._leave(name, told)

    def _leave(self, name: str, told: asyncio.Future[Mentions | None]) -> None:
        others = self._waiting.get(name)
        if others is not None:
            others.discard(told)
            if not others:
                del self._waiting[name]

    async def run(self, read: Read) -> None:
        """Read as long as anyone waits. All who wait get the error with which a read fails."""
        try:
            while self._waiting:
                if (answer := await read(self._mention)) is not None:
                    self._note(*answer)
        except Exception as error:  # noqa: BLE001  those who wait raise it
            self._fail(error)
        except BaseException:
            self._fail(RedisUnavailable("the task that reads for all who wait was cancelled"))
            raise

    def _note(self, since: bytes, names: list[str]) -> None:
        """Tell who waits for these names; they wait no more."""
        self._mention = self._mention.after(since)
        self._latest.append((_position(since), frozenset(names)))
        if len(self._latest) > _REMEMBERED:
            self._known_from, _ = self._latest.popleft()
        for name in names:
            for told in self._waiting.pop(name, ()):
                if not told.done():
                    told.set_result((since, [name]))

    def _fail(self, error: Exception) -> None:
        for told in [one for those in self._waiting.values() for one in those if not one.done()]:
            told.set_exception(error)
        self._waiting.clear()


def _position(entry: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry.split(b"-")))
