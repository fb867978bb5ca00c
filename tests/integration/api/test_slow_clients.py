"""Clients that are slow, endless or many: each is ended within its limit, also before its key was looked at."""

import contextlib
import json
import socket
import time
from pathlib import Path

import pytest

from reliq.model.keys import API_KEYS
from reliq.ops import command
from tests.integration.api.serving import serving
from tests.integration.api.test_framing import answers_in
from tests.support.workers import eventually

POST = b"POST /v1/queues/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
BATCH = b"POST /v1/queues/orders/messages/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"


@contextlib.contextmanager
def connection(service):
    with socket.create_connection(("127.0.0.1", service.base_url.port), timeout=10) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield one


def dripped(one, piece, limit=10.0):
    """Send a piece again and again until the other side ends it; what it answered."""
    received, until = b"", time.monotonic() + limit
    one.settimeout(0.02)
    while time.monotonic() < until:
        try:
            one.sendall(piece)
            data = one.recv(1 << 16)
        except TimeoutError:
            continue
        except OSError:
            return answers_in(received)
        received += data
        if not data:
            one.settimeout(5)
            eventually(lambda: reads_no_more(one, piece * 100))
            return answers_in(received)
    raise AssertionError(f"not ended within {limit} s: {received!r}")


def reads_no_more(one, data):
    try:
        one.sendall(data)
    except OSError:
        return True
    return False


def codes(answers):
    return [(status, json.loads(body)["code"]) for status, body in answers]


@pytest.fixture
def locked(app):
    """There is an API key, which the clients do not have."""
    app.store.call(command("HSET", API_KEYS, "k", b"unreadable"))


def test_headers_that_never_end(url):
    with serving(url, header_timeout=0.3) as service, connection(service) as one:
        one.sendall(POST)
        assert codes(dripped(one, b"x-a: b\r\n")) == [(408, "request_timeout")]


def test_a_body_that_never_ends_behind_the_refusal_of_a_stranger(url, locked):
    with serving(url) as service, connection(service) as one:
        one.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        assert codes(dripped(one, b"1\r\nx\r\n")) == [(401, "unauthorized")]


def test_a_body_without_end_of_a_stranger_that_comes_fast(url, locked):
    with serving(url) as service, connection(service) as one:
        one.sendall(POST + b"content-length: 99999999999\r\n\r\n")
        assert codes(dripped(one, b"x" * 10_000)) == [(401, "unauthorized")]


def test_a_batch_that_comes_line_by_line_for_too_long_says_what_is_enqueued(url, app):
    with serving(url, stream_timeout=0.3) as service, connection(service) as one:
        line = b'{"body": 1}\n'
        piece = b"%x\r\n%b\r\n" % (len(line) * 1000, line * 1000)
        one.sendall(BATCH + b"transfer-encoding: chunked\r\n\r\n" + piece)
        ((status, body),) = dripped(one, b"c\r\n" + line + b"\r\n")
    answer = json.loads(body)
    assert (status, answer["code"]) == (408, "request_timeout")
    assert answer["enqueued"] == app.queue("orders").stats().ready == 1000
    assert {one["status"] for one in answer["results"][1000:]} == {"refused"}


def test_a_connection_without_a_request(url):
    with serving(url, keep_alive=0.2) as service, connection(service) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        received = b""
        while data := one.recv(1 << 16):
            received += data
        assert [status for status, _ in answers_in(received)] == [200]


def test_empty_lines_between_requests_keep_no_connection(url):
    with serving(url, keep_alive=0.2, header_timeout=0.3) as service, connection(service) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answers = dripped(one, b"\r\n")
        assert [status for status, _ in answers] in ([200], [200, 408])


def test_an_answer_that_is_not_read(url, app, name):
    app.queue(name).send_many([b"x" * 250_000 for _ in range(32)])
    body = b'{"limit": 32}'
    request = b"POST /v1/queues/%s/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = request % name.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    with serving(url, write_timeout=0.3) as service, socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", service.base_url.port))
        one.sendall(request)
        eventually(lambda: app.queue(name).stats().processing == 32)
        eventually(lambda: not is_established(service.base_url.port, one.getsockname()[1]))


def is_established(local, remote):
    """Whether the service still has its end of a connection."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = f":{local:04X}", f":{remote:04X}"
    states = [line[3] for line in lines if line[1].endswith(ports[0]) and line[2].endswith(ports[1])]
    return "01" in states


def test_requests_without_waiting_for_answers(url):
    with serving(url) as service, connection(service) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5000)
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := one.recv(1 << 16):
                received += data
    statuses = [status for status, _ in answers_in(received)]
    assert statuses[-1] == 400
    assert set(statuses[:-1]) == {200}
    assert len(statuses) < 100


def test_more_clients_than_are_served(url):
    with serving(url, clients=8) as service:
        with contextlib.ExitStack() as stack:
            for _ in range(7):
                stack.enter_context(connection(service))
            with connection(service) as one:
                ((status, body),) = answers_in(one.recv(1 << 16))
            assert (status, json.loads(body)["code"]) == (503, "overloaded")
            assert service.get("/healthz").is_success  # of a client that was there before
        eventually(lambda: not is_refused(service))


def is_refused(service):
    with connection(service) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        return answers_in(one.recv(1 << 16))[0][0] == 503


def test_a_body_that_is_too_large_is_answered_and_not_read_to_its_end(url):
    with serving(url) as service, connection(service) as one:
        one.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        assert codes(dripped(one, b"10000\r\n" + b"x" * 0x10000 + b"\r\n")) == [(413, "body_too_large")]


def test_a_request_that_came_whole_is_answered_whatever_is_half_behind_it(url, name):
    body = b'{"wait": 1}'
    poll = b"POST /v1/queues/%s/leases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    poll = poll % name.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    with serving(url, header_timeout=0.2) as service, connection(service) as one:
        one.sendall(poll + b"GET /he")
        received = b""
        while data := one.recv(1 << 16):
            received += data
    assert [status for status, _ in answers_in(received)] == [200, 408]
