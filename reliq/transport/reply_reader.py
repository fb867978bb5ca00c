"""Replies of a server (RESP 2), put together from pieces as they arrive."""

from collections.abc import Callable
from typing import Any

from reliq.transport.errors import redis_errors

_ERROR, _STATUS, _NUMBER, _TEXT, _LIST = b"-+:$*"
_END = b"\r\n"


class ReplyReader:
    """Puts replies (RESP 2) together from pieces of any size."""

    def __init__(self, error_of: Callable[[str], Exception]) -> None:
        """`error_of` makes the error for a text of the server."""
        self._error_of = error_of
        self._rest: list[bytes] = []  #: pieces of what is not complete
        self._missing = 0  #: bytes that it needs at least
        self._open: list[tuple[list[Any], int]] = []  #: lists that are not complete, each with its length

    @property
    def begun(self) -> bool:
        """Whether a part of a reply has arrived."""
        return bool(self._rest or self._open)

    def feed(self, data: bytes) -> list[Any]:
        """Return the replies that are complete now; an error that the server answered is one of them.

        Raises InvalidResponse, and the server's errors that end the connection.
        """
        if self._rest:
            self._rest.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._rest)
        replies: list[Any] = []
        at, self._missing = 0, 1
        while (end := data.find(_END, at)) >= 0:
            kind, after = data[at], end + 2
            reply: Any = None
            if kind == _TEXT:
                size = int(data[at + 1 : end])
                if size >= 0:
                    start, after = after, after + size + 2
                    if after > len(data):
                        self._missing = after - len(data)
                        break
                    reply = data[start : start + size]
            elif kind == _NUMBER:
                reply = int(data[at + 1 : end])
            elif kind == _LIST:
                size = int(data[at + 1 : end])
                if size > 0:
                    self._open.append(([], size))
                    at = after
                    continue
                reply = [] if size == 0 else None
            elif kind == _STATUS:
                reply = data[at + 1 : end]
            else:
                reply = self._refused(kind, data[at + 1 : end])
            at = after
            self._put(reply, replies)
        self._rest = [data[at:]] if at < len(data) else []
        return replies

    def _put(self, reply: Any, replies: list[Any]) -> None:
        """Put a reply into the innermost list that is not complete, and each that is complete now into the next."""
        while self._open:
            items, size = self._open[-1]
            items.append(reply)
            if len(items) < size:
                return
            self._open.pop()
            reply = items
        replies.append(reply)

    def _refused(self, kind: int, text: bytes) -> Exception:
        if kind != _ERROR:
            raise redis_errors().InvalidResponse("a reply of an unknown kind")
        error = self._error_of(text.decode("utf-8", "replace"))
        if isinstance(error, redis_errors().ConnectionError):
            raise error
        return error
