"""Answers as they are written: whole ones at once, all others as uvicorn writes them."""

import asyncio
import logging
from typing import Any

import pytest

from reliq_api.http.cycle import ANSWER, Cycle


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.before_body = b""  #: what is written while the application makes the body
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Flow:
    write_paused = False


def answer(headers, *parts, method="GET", keep_alive=True, log=False) -> tuple[Transport, Cycle]:
    """Answer a request with these headers and parts of a body."""

    async def app(send, told) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        told()
        for place, part in enumerate(parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": place < len(parts)})

    return answered(app, method, keep_alive, log)


def answer_as_a_whole(headers, body, method="GET", keep_alive=True, log=False) -> tuple[Transport, Cycle]:
    """Answer a request with a message of reliq's own."""

    async def app(send, told) -> None:
        await send({"type": ANSWER, "status": 200, "headers": headers, "body": body})

    return answered(app, method, keep_alive, log)


def answered(respond, method, keep_alive, access_log) -> tuple[Transport, Cycle]:
    """Run an application, which gets `send`, and what to call when it has sent the head."""
    transport = Transport()

    async def app(scope, receive, send) -> None:
        await respond(send, told)

    def told() -> None:
        transport.before_body = b"".join(transport.written)

    async def run() -> Cycle:
        log = logging.getLogger("reliq.test")
        scope = {
            "type": "http", "method": method, "client": None, "path": "/", "query_string": b"", "headers": [],
            "http_version": "1.1",
        }  # fmt: skip
        options: Any = {"scope": scope, "transport": transport, "flow": Flow()}
        cycle = Cycle(
            **options, logger=log, access_logger=log, access_log=access_log, default_headers=[(b"date", b"today")],
            message_event=asyncio.Event(), expect_100_continue=False, keep_alive=keep_alive, on_response=lambda: None,
        )  # fmt: skip
        await cycle.run_asgi(app)
        return cycle

    return transport, asyncio.run(run())


HEAD = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 4\r\n"
LENGTH = (b"content-length", b"4")


def test_a_whole_answer_is_written_at_once():
    transport, cycle = answer([LENGTH], b"body")
    assert transport.written == [HEAD + b"\r\nbody"]
    assert cycle.response_complete
    assert not transport.closed


def test_the_head_of_a_stream_does_not_wait_for_its_first_piece():
    transport, _ = answer([(b"content-type", b"text/event-stream")], b"data", b"")
    assert transport.before_body.startswith(b"HTTP/1.1 200 OK\r\n")
    assert transport.before_body.endswith(b"\r\n\r\n")


def test_a_connection_that_does_not_stay_is_closed_after_it():
    transport, _ = answer([LENGTH], b"body", keep_alive=False)
    assert transport.written == [HEAD + b"connection: close\r\n\r\nbody"]
    assert transport.closed


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("log", [True, False])
def test_the_message_with_a_whole_answer_is_written_as_its_two_parts_would_be(method, keep_alive, log):
    headers, body = [LENGTH, (b"content-type", b"text/plain")], b"body"
    whole, cycle = answer_as_a_whole(headers, body, method, keep_alive, log)
    parts, _ = answer(headers, body, method=method, keep_alive=keep_alive, log=log)
    assert b"".join(whole.written) == b"".join(parts.written)
    assert whole.closed == parts.closed
    assert cycle.response_complete


@pytest.mark.parametrize(
    ("headers", "parts", "method", "written"),
    [
        ([LENGTH], (b"bo", b"dy"), "GET", HEAD + b"\r\nbody"),
        ([LENGTH], (b"body",), "HEAD", HEAD + b"\r\n"),
        (
            [],
            (b"body",),
            "GET",
            b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
        ),
        ([LENGTH, (b"connection", b"close")], (b"body",), "GET", HEAD + b"connection: close\r\n\r\nbody"),
        ([LENGTH, (b"a", b"1"), (b"a", b"2")], (b"body",), "GET", HEAD + b"a: 1\r\na: 2\r\n\r\nbody"),
    ],
)
def test_other_answers_are_those_of_uvicorn(headers, parts, method, written):
    transport, cycle = answer(headers, *parts, method=method)
    assert b"".join(transport.written) == written
    assert cycle.response_complete


@pytest.mark.parametrize(
    ("headers", "parts"),
    [
        ([LENGTH, (b"location", b"/\r\nset-cookie: a=b")], (b"body",)),
        ([LENGTH, (b"a: b\r\nc", b"d")], (b"body",)),
        ([LENGTH], (b"bodies",)),
        ([LENGTH], ()),
    ],
)
def test_an_answer_that_is_not_http_ends_the_connection(headers, parts):
    transport, _ = answer(headers, *parts)
    assert transport.closed
    assert b"cookie" not in b"".join(transport.written)
