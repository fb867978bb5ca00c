"""Reading replies from a connection of redis-py.

For every reply, redis-py's connection prepares the text of a possible error and, with asyncio, a timeout: 0.3 and 4 us,
while its parser reads a small reply in 0.3 us. Many replies are therefore read from the parser.
"""

import sys
from collections.abc import Callable
from typing import Any

from reliq.transport.errors import redis_errors

MANY = 8  #: replies from which on the parser is asked directly


def read_replies(raw: Any, count: int) -> list[Any]:
    """Read that many replies; an error that the server answered is one of them."""
    read = parser_of(raw, "redis.connection") if count >= MANY else None
    if read is not None:
        return [read() for _ in range(count)]
    return [_read_reply(raw) for _ in range(count)]


def parser_of(raw: Any, module: str) -> Callable[[], Any] | None:
    """Return the reading function of the connection's parser; None if the connection reads in a way of its own."""
    known = sys.modules[module].AbstractConnection.read_response  # importing reliq does not import redis-py
    if getattr(raw.read_response, "__func__", None) is not known:
        return None
    return getattr(getattr(raw, "_parser", None), "read_response", None)


def _read_reply(raw: Any) -> Any:
    try:
        return raw.read_response()
    except redis_errors().ResponseError as error:
        return error
