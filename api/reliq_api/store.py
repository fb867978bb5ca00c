"""The store of the service, whose runs end with errors that have an answer."""

import logging

from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.ops import Request, Together
from reliq.runtime.outage_log import OutageLog
from reliq.transport.aio_connection import AioConnection
from reliq.transport.aiostore import AioStore
from reliq.transport.calls import only_reads

log = logging.getLogger("reliq.api")


class ServiceStore(AioStore):
    """A store for requests of clients: whatever a connection raises, each of them gets an answer."""

    def __init__(self, url: str, connections: int, *, allow_eviction: bool, timeout: float) -> None:
        super().__init__(url, allow_eviction=allow_eviction, timeout=timeout, calls=connections)
        self._unforeseen = OutageLog(log, "an exception that no call to Redis should raise")

    async def _error_for_steps(
        self, error: BaseException, request: Request | Together, connection: AioConnection | None
    ) -> BaseException:
        """Return the error for the steps. Any exception of a connection is a ReliqError, which they can handle."""
        if isinstance(error, ReliqError) or not isinstance(error, Exception):
            return error
        if connection is not None:
            await self._drop(connection)
        self._unforeseen.failed(error)
        kind = RedisUnavailable if not isinstance(request, Together) and only_reads(request) else OutcomeUnknown
        replacement = kind(f"no answer from Redis at {self.where}: {type(error).__name__}")
        replacement.__cause__ = error
        return replacement

    @staticmethod
    async def _drop(connection: AioConnection) -> None:
        try:
            await connection.close()
        except Exception as error:  # noqa: BLE001  it was forgotten before it could fail to close
            log.debug("a connection failed to close: %r", error)
