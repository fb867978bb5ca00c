"""One request and its answer on a connection: uvicorn's, but an answer that comes whole is written at once.

uvicorn writes head and body apart, and looks at each name and value of the head by itself: twice the time. An extension
of ASGI, the message `ANSWER`, is a whole answer, whose headers an application vouches for: half of the rest.
"""

from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from reliq_api.http.requests import WHOLE

ANSWER = "reliq.answer"  #: an extension in the scope, and the type of its message: status, headers, body
_LENGTH = b"content-length"
#: Headers by which uvicorn decides how it goes on; it writes answers with one of them itself.
_DECIDES = frozenset((b"connection", b"transfer-encoding"))


class Cycle(RequestResponseCycle):
    """A request and its answer."""

    _start: Any = None  #: the head of an answer with a known length, which waits for the body

    def take_body(self) -> bytes:
        """Return the complete body, in the form in which `receive` returns it."""
        body, self.body = bytes(self.body), bytearray()
        self.message_event.clear()
        self.flow.resume_reading()
        return body

    async def send(self, message: Any) -> None:
        if message["type"] == ANSWER:
            return await self._send_answer(message)
        start, self._start = self._start, None
        if start is not None:
            head = self._head(start, message)
            if head is not None:
                return self._end(head + message["body"])
            self.response_started = False
            await super().send(start)
        elif self._waits(message):
            self._start, self.response_started = message, True
            return None
        return await super().send(message)

    async def _send_answer(self, answer: Any) -> None:
        """Write a whole answer, or let uvicorn do it."""
        if self._at_once:
            self.response_started = True
            self._end(self._lines(answer["status"], [*self.default_headers, *answer["headers"]]) + answer["body"])
        else:
            start: Any = {**answer, "type": "http.response.start"}
            await super().send(start)
            await super().send({"type": "http.response.body", "body": answer["body"]})

    @property
    def _at_once(self) -> bool:
        """Whether an answer may be written: to a client that reads it, without a line in a log."""
        held = self.response_started or self.flow.write_paused or self.access_log or self.disconnected
        return not held and self.scope["method"] != "HEAD"

    def _waits(self, message: Any) -> bool:
        """Whether this is the head of an answer with a known length, which may be written: its body follows at once.

        The head of a stream does not wait: its first piece may come much later.
        """
        return self._at_once and message["type"] == "http.response.start" and _LENGTH in dict(message["headers"])

    def _head(self, start: Any, body: Any) -> bytes | None:
        """Return the bytes of the head; None if the answer is not whole, or of a kind of its own."""
        if self.disconnected or "body" not in body or body.get("more_body"):
            return None
        headers = dict([*self.default_headers, *start["headers"]])  # one that is repeated is uvicorn's
        if len(headers) < len(self.default_headers) + len(start["headers"]) or not _DECIDES.isdisjoint(headers):
            return None
        if headers.get(_LENGTH) != b"%d" % len(body["body"]) or HEADER_RE.search(b"".join(headers)):
            return None
        if HEADER_VALUE_RE.search(b"".join(headers.values())):
            return None
        return self._lines(start["status"], headers.items())

    def _lines(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        lines = [STATUS_LINE[status], *[b"%b: %b\r\n" % pair for pair in headers]]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return b"%b\r\n" % b"".join(lines)

    def _end(self, answer: bytes) -> None:
        self.waiting_for_100_continue, self.chunked_encoding = False, False
        self.transport.write(answer)
        self.scope.pop(WHOLE, None)  # type: ignore[misc]  # it refers to this object
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
