"""Writing to an asyncio connection of redis-py and reading from it, without a task for each call; see replies."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from reliq.transport.errors import redis_errors
from reliq.transport.replies import MANY, parser_of

_IN_A_ROW = 64  #: replies that share one timeout
_AT_ONCE = 16 * 1024  #: bytes that a socket takes without waiting: the connection has no others on their way


def written(raw: Any, packed: Sequence[bytes | memoryview]) -> bool:
    """Write a small request at once, where redis-py makes a task; False if the connection must do it itself."""
    if len(packed) > 1 or len(packed[0]) > _AT_ONCE or raw.health_check_interval:
        return False
    known = sys.modules["redis.asyncio.connection"].AbstractConnection.send_packed_command
    writer = raw._writer  # noqa: SLF001  redis-py tells no other way
    if getattr(raw.send_packed_command, "__func__", None) is not known or writer is None:
        return False
    writer.write(packed[0])
    return True


async def read_replies(raw: Any, count: int) -> list[Any]:
    """Read that many replies; an error that the server answered is one of them."""
    read = parser_of(raw, "redis.asyncio.connection") if count >= MANY else None
    if read is None:
        return [await _read_reply(raw) for _ in range(count)]
    replies: list[Any] = []
    while len(replies) < count:
        async with asyncio.timeout(raw.socket_timeout):
            replies += [await read() for _ in range(min(_IN_A_ROW, count - len(replies)))]
    return replies


async def _read_reply(raw: Any) -> Any:
    try:
        return await raw.read_response()
    except redis_errors().ResponseError as error:
        return error
