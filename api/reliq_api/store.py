"""The store of the service, with a bounded number of connections to Redis for any number of requests."""

import asyncio
import logging
from typing import TypeVar

from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.ops import Request, Steps, Together
from reliq.runtime.outage_log import OutageLog
from reliq.transport.aio_connection import AioConnection
from reliq.transport.aiostore import AioStore
from reliq.transport.calls import only_reads

log = logging.getLogger("reliq.api")

T = TypeVar("T")


class BoundedStore(AioStore):
    """A store with at most `connections` runs at once; runs with their own connection are not counted."""

    def __init__(self, url: str, connections: int, *, allow_eviction: bool, timeout: float) -> None:
        super().__init__(url, allow_eviction=allow_eviction, timeout=timeout)
        self._free = asyncio.Semaphore(connections)
        self._unforeseen = OutageLog(log, "an exception that no call to Redis should raise")

    async def run(self, steps: Steps[T], connection: AioConnection | None = None, timeout: float | None = None) -> T:
        if connection is not None:
            return await super().run(steps, connection, timeout)
        await self._free.acquire()
        try:
            return await super().run(steps, None, timeout)
        finally:
            self._free.release()

    async def _told(
        self, error: BaseException, request: Request | Together, connection: AioConnection
    ) -> BaseException:
        """Return the error for the steps. Any exception of a connection is a ReliqError, which they can handle."""
        if isinstance(error, ReliqError) or not isinstance(error, Exception):
            return error
        await self._drop(connection)
        self._unforeseen.failed(error)
        kind = RedisUnavailable if not isinstance(request, Together) and only_reads(request) else OutcomeUnknown
        told = kind(f"no answer from Redis at {self.where}: {type(error).__name__}")
        told.__cause__ = error
        return told

    @staticmethod
    async def _drop(connection: AioConnection) -> None:
        try:
            await connection.close()
        except Exception as error:  # noqa: BLE001  it was forgotten before it could fail to close
            log.debug("a connection failed to close: %r", error)
