"""Output as Server-Sent Events, to those who follow it while the handler runs."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from reliq.errors import ReliqError
from reliq.features.output.model import Chunk
from reliq.features.output.steps import LOOK_EVERY, Reading
from reliq.transport.aiostore import AioStore
from reliq_api.background import Background
from reliq_api.consume.homes import HomesOf
from reliq_api.http.problems import Problem

MOST_STREAMS = 1000  #: that one process serves at once
_SOON = 0.05  #: seconds between two reads while chunks come; up to LOOK_EVERY while none does
_ALIVE = 15.0  #: seconds after which a stream without chunks says that it lives
_CONFIRMED = 1.0  #: seconds after which the key of a stream is looked at again

Confirm = Callable[[], Awaitable[None]]  #: raises Problem if the key of the request is no longer valid


class Streams:
    """The readers that follow outputs in this process. They hold no connection to Redis while they wait."""

    def __init__(self, store: AioStore, background: Background, homes: HomesOf) -> None:
        self._store = store
        self.homes = homes
        self._open = 0
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End all streams, because the service stops: clients connect again, and go on where they were."""
        self._draining.set()

    def check(self) -> None:
        """Raise Problem if there are too many."""
        if self._open >= MOST_STREAMS:
            raise Problem("overloaded", f"{self._open:,} streams are open, which is the limit")

    async def events(self, reading: Reading, confirm: Confirm) -> AsyncIterator[str]:
        """Yield a stream, event by event. It breaks off while Redis is away, and when its key is no longer valid."""
        self._open += 1
        try:
            with contextlib.suppress(ReliqError, Problem):
                async for event in self._events(reading, confirm):
                    yield event
        finally:
            self._open -= 1

    async def _events(self, reading: Reading, confirm: Confirm) -> AsyncIterator[str]:
        pause, silent, confirmed_at = _SOON, 0.0, time.monotonic()
        while not self._draining.is_set():
            if time.monotonic() - confirmed_at > _CONFIRMED:
                await confirm()
                confirmed_at = time.monotonic()
            chunks = await self._store.run(reading.some(0.0))
            for one in chunks:
                yield _event(one)
            if reading.ended:
                yield "event: end\ndata: {}\n\n"
                return
            pause, silent = (_SOON, 0.0) if chunks else (min(2 * pause, LOOK_EVERY), silent + pause)
            if silent > _ALIVE:
                silent = 0.0
                yield ": still running\n\n"
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._draining.wait(), pause)


def _event(chunk: Chunk) -> str:
    members = chunk.members()
    return f"id: {members.pop('id')}\ndata: {json.dumps(members)}\n\n"
