"""Reading replies from an asyncio connection of redis-py; see replies."""

import asyncio
from typing import Any

from reliq.transport.errors import redis_errors
from reliq.transport.replies import MANY, parser_of

_IN_A_ROW = 64  #: replies that share one timeout


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
