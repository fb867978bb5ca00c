"""Results over HTTP. All who wait for results of one queue share one blocking connection."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from reliq import ops
from reliq.contract.values import check_id
from reliq.errors import ReliqError
from reliq.features.results import ops as own
from reliq.features.results.steps import ASK_EVERY, LOOK_EVERY, look, look_at_all, missing
from reliq.model.keys import QueueKeys
from reliq.protocol.homes import QueueHomes
from reliq.transport.aiostore import AioStore
from reliq_api.background import Background
from reliq_api.consume.homes import HomesOf

log = logging.getLogger("reliq.api")

_PAUSE = 0.2  #: seconds between two tries while Redis is away

Gone = Callable[[], Coroutine[Any, Any, None]]  #: ends when the client has disconnected


class Results:
    """All who wait for results in this process."""

    def __init__(self, store: AioStore, background: Background, homes: HomesOf) -> None:
        self._store = store
        self._background = background
        self._homes = homes
        self._watches: dict[str, Watch] = {}
        self._draining = False

    async def get(self, queue: str, identity: str, wait: float, gone: Gone) -> bytes:
        """Return the stored result of a message. Raises HandlerFailed, and NoResult if there is none: after `wait`
        seconds, when the service stops, or when the client disconnects (`gone`).
        """
        check_id(identity)
        homes = self._homes(queue)
        keys, *others = await self._store.run(homes.known())
        if not wait:
            stored = await self._look([keys, *others], identity, wait)
        else:  # several homes are asked, again and again
            watch = contextlib.nullcontext(asyncio.Event()) if others else (await self._watch(keys)).waiting(identity)
            with watch as noticed, _told(gone, noticed) as listener:
                stored = await self._awaited(homes, identity, wait, noticed, listener)
        if stored is None:
            raise missing(keys, identity)
        return stored

    async def _look(self, every: list[QueueKeys], identity: str, wait: float) -> bytes | None:
        if len(every) > 1:
            stored: bytes | None = await self._store.run(look_at_all(every, identity))
        else:
            stored = (await self._store.run(look(every[0], identity, wait))).result
        return stored

    async def _awaited(
        self, homes: QueueHomes, identity: str, wait: float, noticed: asyncio.Event, listener: asyncio.Task[None]
    ) -> bytes | None:
        until = time.monotonic() + wait
        while True:
            noticed.clear()  # before the look: what happens after it is noticed
            every = await self._store.run(homes.known())  # each time: their number may change meanwhile
            stored = await self._look(every, identity, max(0.0, until - time.monotonic()))
            left = until - time.monotonic()
            if stored is not None or left <= 0 or self._draining or listener.done():
                return stored
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(noticed.wait(), min(left, LOOK_EVERY if len(every) == 1 else ASK_EVERY))

    async def _watch(self, keys: QueueKeys) -> "Watch":
        """Return the watch of a queue, which notices everything from now on; to be joined before the next await."""
        if keys.queue not in self._watches:
            since = await self._store.run(ops.one(own.last_answer(keys)))
            if keys.queue not in self._watches:
                self._watches[keys.queue] = watch = Watch(self._store, keys, since, self._watches)
                self._background.start("awaiting results", watch.run)
        return self._watches[keys.queue]

    def drain(self) -> None:
        """Answer all now, because the service stops."""
        self._draining = True
        for watch in self._watches.values():
            watch.hurry()


@contextlib.contextmanager
def _told(gone: Gone, noticed: asyncio.Event) -> Iterator[asyncio.Task[None]]:
    """Listen for the end of the client's connection, and tell it to the one who waits."""
    listener = asyncio.create_task(gone())

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()
            noticed.set()

    listener.add_done_callback(ended)
    try:
        yield listener
    finally:
        listener.cancel()


class Watch:
    """Those who wait for results of one queue, and the connection that is told which messages have one.

    Exists as long as anyone waits.
    """

    def __init__(self, store: AioStore, keys: QueueKeys, since: bytes, watches: dict[str, "Watch"]) -> None:
        self._store = store
        self._keys = keys
        self._since = since
        self._watches = watches
        self._waiting: dict[str, set[asyncio.Event]] = {}  #: by the id of the message

    @contextlib.contextmanager
    def waiting(self, identity: str) -> Iterator[asyncio.Event]:
        """Return an event that is set whenever the message has something new."""
        noticed = asyncio.Event()
        self._waiting.setdefault(identity, set()).add(noticed)
        try:
            yield noticed
        finally:
            self._waiting[identity].discard(noticed)
            if not self._waiting[identity]:
                del self._waiting[identity]

    def hurry(self) -> None:
        for noticed in [one for events in self._waiting.values() for one in events]:
            noticed.set()

    async def run(self) -> None:
        connection = self._store.connection("reliq-results")
        try:
            while self._waiting:
                await self._read(connection)
            del self._watches[self._keys.queue]  # before any await: the next one who waits starts another watch
        finally:
            try:
                await connection.close()
            except Exception as error:  # noqa: BLE001  it was forgotten before it could fail to close
                log.debug("the connection that waits for results failed to close: %r", error)

    async def _read(self, connection: Any) -> None:
        try:
            steps = ops.one(own.answered(self._keys, self._since, LOOK_EVERY))
            answered = await self._store.run(steps, connection, timeout=0)
        except ReliqError as error:
            log.debug("queue=%s waiting for results was interrupted and continues: %s", self._keys.queue, error)
            await asyncio.sleep(_PAUSE)
            return
        if answered is not None:
            self._since, ids = answered
            for identity in ids:
                for noticed in self._waiting.get(identity, ()):
                    noticed.set()
