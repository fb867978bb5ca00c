"""uvicorn's HTTP protocol with the two limits it lacks: how long headers may take to come, and how large they may get;
and without trailers.

Without them a client that sends a byte now and then holds a connection for ever, and an endless header fills memory.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reliq_api.problems import MEDIA_TYPE, Problem

HEADERS_LARGEST = 64 * 1024  #: bytes of request line and headers


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    header_timeout = 10.0  #: seconds

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = True
        self._received = 0  #: bytes of the headers so far
        self._completed = False  #: a request ended in the bytes just received
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._expect_headers()
        self._completed = False
        super().data_received(data)
        if self._in_headers and not self._completed:
            self._received += len(data)
            if self._received > HEADERS_LARGEST:
                self._refuse(Problem("headers_too_large", f"more than {HEADERS_LARGEST} bytes of headers"))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # a trailer is no header: whoever stands in front of us has not looked at it
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._have_headers()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_headers = self._completed = True
        self._received = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("invalid_http", msg))

    def _expect_headers(self) -> None:
        if self._deadline is None:
            late = Problem("request_timeout", f"no complete headers within {self.header_timeout:g} s")
            self._deadline = self.loop.call_later(self.header_timeout, self._refuse, late)

    def _have_headers(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, problem: Problem) -> None:
        """Answer and close, without the application: there is no request for it."""
        self._have_headers()
        if self.transport.is_closing():
            return
        content = msgspec.json.encode(problem.members())
        head = (
            f"HTTP/1.1 {problem.status_code} {HTTPStatus(problem.status_code).phrase}\r\n"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()
