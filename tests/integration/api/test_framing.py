"""Whatever the framing of a request: an answer of 4xx means that nothing was enqueued, and 201 that it was.

Raw bytes, over a connection of its own, in as many pieces as the case has.
"""

import contextlib
import json
import re
import socket
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.workers import eventually

MESSAGE = b'{"body": 1}'
HEAD = b"POST /v1/queues/%s/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LINES = HEAD.replace(b"/messages", b"/messages/batch").replace(b"application/json", b"application/x-ndjson")
SIZED = HEAD + b"content-length: 11\r\n\r\n" + MESSAGE
OFFER = HEAD + b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
PIECE = b"b\r\n" + MESSAGE + b"\r\n"
END = b"0\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


def exchange(service, *pieces, expected=0, silence=0.1):
    """All answers that come, status and body of each: `expected` ones, and what follows until there is silence."""
    received = b""
    with socket.create_connection(("127.0.0.1", service.base_url.port), timeout=5) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                connection.sendall(piece)
            while True:
                connection.settimeout(5 if len(answers_in(received)) < expected else silence)
                data = connection.recv(1 << 16)
                if not data:
                    break
                received += data
    return answers_in(received)


def answers_in(data):
    found = []
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        if not end:
            break
        status = int(head.split()[1])
        length = re.search(rb"content-length: (\d+)", head.lower())
        size = int(length[1]) if length else 0
        if status >= 200:
            found.append((status, rest[:size]))
        data = rest[size:]
    return found


def ready(app, name):
    return app.queue(name).stats().ready


FRAMINGS = {
    "a length": ([SIZED], [201]),
    "pieces": ([CHUNKED + PIECE + END], [201]),
    "one piece with an extension": ([CHUNKED + b"b;a=b\r\n" + MESSAGE + b"\r\n" + END], [201]),
    "pieces with a trailer": ([CHUNKED + PIECE + b"0\r\nx-a: b\r\n\r\n"], [201]),
    "a length and bytes behind": ([SIZED + b"\x00garbage\r\n\r\n"], [201, 400]),
    "a length and bytes behind, later": ([SIZED, b"\x00garbage\r\n\r\n"], [201, 400]),
    "a length that is too short": ([HEAD + b"content-length: 11\r\n\r\n" + MESSAGE + b"}"], [201, 400]),
    "pieces and bytes behind": ([CHUNKED + PIECE + END + b"}}}}"], [201, 400]),
    "pieces and a malformed trailer": ([CHUNKED + PIECE + b"0\r\nno trailer\r\n\r\n"], [400]),
    "pieces and a malformed size": ([CHUNKED + PIECE + b"zz\r\n"], [400]),
    "pieces and a malformed size, later": ([CHUNKED + PIECE, b"zz\r\n"], [400]),
    "pieces that are longer than they say": ([CHUNKED + b"5\r\n" + MESSAGE + b"\r\n" + END], [400]),
    "a second request that is none": ([SIZED + b"GET / HTTP/9.9\r\n\r\n"], [201, 400]),
    "a second request with a bad path": ([SIZED + b"GET \xff\xfe HTTP/1.1\r\n\r\n"], [201, 400]),
    "a second request with endless headers": ([SIZED + GET[:-2], b"x: " + b"a" * 600_000], [201, 431]),
    "a second request with two lengths": (
        [SIZED + HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx"], [201, 400],
    ),
    "two requests": ([SIZED + SIZED], [201, 201]),
    "a request between two": ([SIZED + GET + SIZED], [201, 200, 201]),
    "an offer of HTTP/2": ([OFFER + b"content-length: 11\r\n\r\n" + MESSAGE], [201]),
    "an offer of HTTP/2, the body later": ([OFFER + b"content-length: 11\r\n\r\n", MESSAGE], [201]),
    "an offer of HTTP/2 with pieces": ([OFFER + b"transfer-encoding: chunked\r\n\r\n" + PIECE + END], [201]),
    "an offer of HTTP/2 between two requests": (
        [SIZED + OFFER + b"content-length: 11\r\n\r\n" + MESSAGE + GET], [201, 201, 200],
    ),
    "an offer of HTTP/2 with two lengths": ([OFFER + b"content-length: 1\r\ncontent-length: 2\r\n\r\nx"], [400]),
    "an upgrade": ([SIZED.replace(b"host:", b"connection: upgrade\r\nupgrade: x\r\nhost:")], [400]),
    "an upgrade and bytes behind": (
        [SIZED.replace(b"host:", b"connection: upgrade\r\nupgrade: websocket\r\nhost:") + b"\x00\x01"], [400],
    ),
    "an upgrade behind a request": (
        [SIZED + GET.replace(b"host:", b"connection: upgrade\r\nupgrade: x\r\nhost:")], [201, 400],
    ),
    "CONNECT": ([SIZED.replace(b"POST", b"CONNECT", 1)], [400]),
    "half a body": ([HEAD + b"content-length: 12\r\n\r\n" + MESSAGE], None),
    "half a piece": ([CHUNKED + b"c\r\n" + MESSAGE], None),
    "no last piece": ([CHUNKED + PIECE], None),
    "HTTP/1.0 in pieces": ([(CHUNKED + PIECE + END).replace(b"HTTP/1.1", b"HTTP/1.0")], None),
    "a length of 0 and a body": ([HEAD + b"content-length: 0\r\n\r\n" + MESSAGE], [400, 400]),
    "no length and a body": ([HEAD + b"\r\n" + MESSAGE], [400, 400]),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "statuses"), FRAMINGS.values(), ids=FRAMINGS.keys())
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "byte by byte"])
def test_what_is_answered_is_what_was_done(service, app, name, pieces, statuses, apart):
    pieces = [piece.replace(b"%s", name.encode()) for piece in pieces]
    if apart:
        pieces = [bytes([byte]) for piece in pieces for byte in piece[:2000]]
        if statuses and 431 in statuses:
            pytest.skip("70,000 bytes one by one")
    answers = exchange(service, *pieces, expected=len(statuses or []))
    if statuses is not None:
        assert [status for status, _ in answers] == statuses
    assert ready(app, name) == sum(status == 201 for status, _ in answers)
    for status, body in answers:
        if status >= 400:
            assert json.loads(body)["status"] == status


def test_a_batch_whose_framing_breaks_says_what_was_enqueued(service, app, name):
    line = b'{"body": 1}\n'
    lines = b"%x\r\n" % (len(line) * 1500) + line * 1500 + b"\r\n"
    head = LINES.replace(b"%s", name.encode()) + b"transfer-encoding: chunked\r\n\r\n"
    ((status, body),) = exchange(service, head + lines, b"zz\r\n", expected=1)
    assert status == 400
    answer = json.loads(body)
    assert answer["enqueued"] == ready(app, name)
    assert [one["status"] for one in answer["results"]].count("enqueued") == answer["enqueued"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from([SIZED, CHUNKED + PIECE + END, GET]), max_size=3),
    st.one_of(st.binary(max_size=30), st.sampled_from([b"", PIECE, END, CHUNKED, b"POST / HTTP/1.1\r\n", b"\r\n\r\n"])),
    st.lists(st.integers(0, 600), max_size=4),
)
def test_any_requests_with_anything_behind_them_in_any_pieces(service, app, name, requests, behind, cuts):
    app.queue(name).purge()
    data = (b"".join(requests) + behind).replace(b"%s", name.encode())
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = (data[start:end] for start, end in pairwise(places))
    answers = exchange(service, *pieces, expected=len(requests))
    statuses = [status for status, _ in answers]
    assert statuses[: len(requests)] == [200 if one is GET else 201 for one in requests]
    assert ready(app, name) == statuses.count(201)
    assert eventually(lambda: service.get("/healthz").is_success)
