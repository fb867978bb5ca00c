"""Replies on an asyncio connection of redis-py, read from its transport as they come.

redis-py reads a reply line by line from a stream, within a timeout of its own: half of what a small call costs. So once
it has made a connection, a protocol of reliq's takes the place of the stream's. redis-py still parses errors, writes
large requests and closes the connection.
"""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from reliq.transport.errors import redis_errors
from reliq.transport.reply_reader import ReplyReader

_AT_ONCE = 16 * 1024  #: bytes that a socket takes without waiting: the connection has no others on their way


class Replies(asyncio.Protocol):
    """The protocol that reads the replies on a connection; one caller at a time waits for some."""

    def __init__(self, raw: Any) -> None:
        """Take the place of the protocol of a connection that redis-py has made."""
        self._transport = raw._writer.transport  # noqa: SLF001  redis-py tells no other way
        self._former = self._transport.get_protocol()
        self._timeout: float = raw.socket_timeout
        self._loop = asyncio.get_running_loop()
        self._reader = ReplyReader(raw._parser.parse_error)  # noqa: SLF001  likewise
        self._arrived: list[Any] = []
        self._failure: Exception | None = None  #: why nothing more comes
        self._waiter: asyncio.Future[None] | None = None
        self._until = 0.0  #: by the event loop's clock: when its wait is too long
        self._silence: asyncio.TimerHandle | None = None  #: runs then, or earlier: moving it costs more than a look
        self._transport.set_protocol(self)

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self._failure is not None or bool(self._transport.is_closing())

    def write(self, packed: Sequence[bytes | memoryview]) -> bool:
        """Write a small request at once; False for a large one, for which redis-py waits as long as it must."""
        if len(packed) > 1 or len(packed[0]) > _AT_ONCE:
            return False
        self._transport.write(packed[0])
        return True

    async def read(self, count: int) -> list[Any]:
        """Return that many replies. Raises redis-py's errors of a connection that failed or was silent for too long."""
        while len(self._arrived) < count:
            if self._failure is not None:
                raise self._failure
            self._waiter = self._loop.create_future()
            self._until = self._loop.time() + self._timeout
            if self._silence is None:
                self._silence = self._loop.call_at(self._until, self._look)
            try:
                await self._waiter
            finally:
                self._waiter = None
        replies, self._arrived = self._arrived[:count], self._arrived[count:]
        return replies

    def data_received(self, data: bytes) -> None:
        try:
            self._arrived += self._reader.feed(data)
        except Exception as error:  # noqa: BLE001  the connection is of no use any more, whatever it is
            self._fail(error)
        if self._arrived:
            self._wake()
        else:  # a part of a large reply
            self._until = self._loop.time() + self._timeout

    def eof_received(self) -> bool | None:
        self._fail(redis_errors().ConnectionError("the server closed the connection"))
        kept: bool | None = self._former.eof_received()
        return kept

    def connection_lost(self, exc: Exception | None) -> None:
        if self._silence is not None:
            self._silence.cancel()
        failure = redis_errors().ConnectionError("the connection was lost")
        failure.__cause__ = exc
        self._fail(failure)
        self._former.connection_lost(exc)

    def pause_writing(self) -> None:
        self._former.pause_writing()

    def resume_writing(self) -> None:
        self._former.resume_writing()

    def _look(self) -> None:
        """Look whether a caller has waited for too long, and again when that may be so."""
        self._silence = None
        if self._waiter is None:
            return
        if self._loop.time() < self._until:
            self._silence = self._loop.call_at(self._until, self._look)
        else:
            self._fail(redis_errors().TimeoutError("no reply came in time"))

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def replies_on(raw: Any) -> Replies | None:
    """Return what reads the replies on a new connection; None for one that reads or writes in a way of its own.

    Another version of redis-py may have other private attributes: then it reads them itself.
    """
    known = sys.modules["redis.asyncio.connection"].AbstractConnection
    own = [getattr(getattr(raw, name), "__func__", None) is not getattr(known, name) for name in _METHODS]
    if any(own) or raw.health_check_interval:
        return None
    with contextlib.suppress(AttributeError):
        return Replies(raw)
    return None


_METHODS = ("read_response", "send_packed_command")


async def read_replies(raw: Any, count: int) -> list[Any]:
    """Read that many replies as redis-py does; an error that the server answered is one of them."""
    return [await _read_reply(raw) for _ in range(count)]


async def _read_reply(raw: Any) -> Any:
    try:
        return await raw.read_response()
    except redis_errors().ResponseError as error:
        return error
