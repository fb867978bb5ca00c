"""uvicorn's HTTP protocol with additions: limits of time and size for clients that are slow, endless or many, no
trailers, and answers in the order of the requests.

Without the limits, a client that sends or reads a byte now and then holds a connection forever, and an endless header
fills memory. And invalid bytes after a request would be answered with 400 while that request is carried out: here its
own answer comes first.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from reliq_api.http.cycle import ANSWER, Cycle
from reliq_api.http.paths import decoded
from reliq_api.http.problems import MEDIA_TYPE, Problem
from reliq_api.http.requests import WHOLE, break_off

MAX_HEADERS_BYTES = 64 * 1024  #: bytes of request line and headers
PIPELINED_MOST = 16  #: requests that wait for the answer to an earlier one
_EXTENSIONS: dict[str, dict[object, object]] = {ANSWER: {}}
_OFFER = {b"upgrade", b"http2-settings"}  #: headers, and words of `connection`
_LINGER = 2.0  #: seconds for which further bytes of a refused client are read and dropped, so that it gets the answer


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client."""

    header_timeout = 10.0  #: seconds
    write_timeout = 30.0  #: seconds
    connections_most = 10_000

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_headers = True
        self._begun = False  #: a request has begun whose headers are not complete
        self._received = 0  #: bytes of the headers so far
        self._completed = False  #: a request ended in the bytes just received
        self._deadline: asyncio.TimerHandle | None = None  #: for headers
        self._refusal: Problem | None = None  #: reading has ended; sent when no request runs any more
        self._broken = False  #: the refusal concerns the latest request, which the application refuses
        self._idle_since = 0.0  #: by the event loop's clock: when the latest answer was complete
        self._writing: asyncio.TimerHandle | None = None  #: checks whether the client still reads
        self._unsent = 0  #: bytes, at the latest check

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > self.connections_most:
            self._refuse(Problem("overloaded", f"more than {self.connections_most} connections"))
        else:
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_headers()
        self._unset_keepalive_if_required()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unsent = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self.write_timeout, self._look_at_writing)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _look_at_writing(self) -> None:
        """Close the connection of a client that has read nothing since the latest check."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._unsent >= before:
            self.transport.abort()
        else:
            self._writing = self.loop.call_later(self.write_timeout, self._look_at_writing)

    # --- input

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        self._completed = False
        self._read(data)
        if self._begun or (self._in_headers and not self._completed):
            self._expect_headers()
        if self._in_headers and not self._completed:
            self._received += len(data)
            if self._received > MAX_HEADERS_BYTES:
                self._refuse(Problem("headers_too_large", f"more than {MAX_HEADERS_BYTES} bytes of headers"))

    def _read(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._go_on_without_offer(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _go_on_without_offer(self, rest: bytes) -> None:
        """Read a request as if it did not offer HTTP/2; else the parser would take its body for another protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        self.parser = httptools.HttpRequestParser(self)
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                value = b", ".join(one for one in map(bytes.strip, value.split(b",")) if one.lower() not in _OFFER)
            if name not in _OFFER:
                lines.append(b"%s: %s" % (name, value))
        self._read(b"\r\n".join([*lines, b"", rest]))

    def _offers_http_2(self) -> bool:
        """Whether the client would go on with HTTP/2, as Java's does by default on its first request."""
        return self.parser.should_upgrade() and dict(self.headers).get(b"upgrade", b"").lower() == b"h2c"

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # a trailer is not a header: a proxy in front of the service has not checked it
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._offers_http_2():
            return
        if self.parser.should_upgrade():
            raise ValueError("there is no protocol to upgrade to")
        if len(self.pipeline) >= PIPELINED_MOST:
            raise ValueError(f"more than {PIPELINED_MOST} requests without waiting for an answer")
        self._begin()
        self._in_headers = self._begun = False
        self._have_headers()

    def _begin(self) -> None:
        """Start the application on a request, or let this wait for the answer to an earlier one."""
        version, url = self.parser.get_http_version(), httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope |= {
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "path": self.root_path + decoded(path),
            "raw_path": self.root_path.encode() + url.path,
            "query_string": url.query or b"",
            "extensions": _EXTENSIONS,
        }
        before, self.cycle = self.cycle, Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )  # fmt: skip
        if before is None or before.response_complete:
            self._run(self.cycle)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _run(self, cycle: Any) -> None:
        """Start the application on a request."""
        task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_message_complete(self) -> None:
        if self._offers_http_2():
            return
        self._in_headers = self._completed = True
        self._received = 0
        self.scope[WHOLE] = self.cycle.take_body  # type: ignore[literal-required,attr-defined]
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("invalid_http", msg))

    def _expect_headers(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.header_timeout, self._refuse_late)

    def _refuse_late(self) -> None:
        self._refuse(Problem("request_timeout", f"no complete headers within {self.header_timeout:g} s"))

    def _have_headers(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- output

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one. Written anew: uvicorn's sets and cancels a timer each time."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._run(self.pipeline.pop()[0])
        elif self._broken:
            self._hang_up()
        elif self._refusal is not None:
            self._answer_refusal()
        else:
            self._wait_for_next()

    def _wait_for_next(self) -> None:
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again(self.timeout_keep_alive)
        if self.cycle.more_body:  # answered before its body has arrived
            self.loop.call_later(_LINGER, self._end_body, self.cycle)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle for too long; one that answers, or has begun a request, is not idle."""
        self.timeout_keep_alive_task = None
        if self._running() or self._deadline is not None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_again(left)
        else:
            self.transport.close()

    def _look_again(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _running(self) -> bool:
        """Whether a request on this connection is unanswered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _end_body(self, cycle: Any) -> None:
        if cycle is self.cycle and cycle.more_body:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application and close; earlier requests are answered in order."""
        self._have_headers()
        if self._refusal is not None or self.transport.is_closing():
            return
        self._refusal = problem
        if not self._running():
            self._answer_refusal()
        elif not self._in_headers:  # the body of the latest request is broken: the application refuses it
            self._broken = True
            break_off(self.cycle.scope, problem)  # type: ignore[arg-type]
            self.cycle.message_event.set()

    def _answer_refusal(self) -> None:
        assert self._refusal is not None  # noqa: S101
        problem = self._refusal
        content = msgspec.json.encode(problem.members())
        head = (
            f"HTTP/1.1 {problem.status_code} {HTTPStatus(problem.status_code).phrase}\r\n"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(content)}\r\ncache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self._hang_up()

    def _hang_up(self) -> None:
        """End the output and close a little later: closing at once with unread bytes would reset the connection."""
        self._unset_keepalive_if_required()
        self.transport.write_eof()
        self.loop.call_later(_LINGER, self.transport.close)
