"""Bodies up to 64 MiB over HTTP: the limit, refused before the body is read, and the memory for all bodies together."""

import contextlib
import json
import socket
from base64 import b64encode

import pytest

from tests.integration.api.serving import JSON, problem, raw_exchange, serving
from tests.support.workers import eventually

MIB = 1024 * 1024
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def large(url):
    """The service with the largest limit."""
    with serving(url, max_body=64 * MIB) as client:
        yield client


def head(path, *headers):
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode()


FORMS = ["raw", "chunked", "text", "base64", "line"]
LARGEST = {"raw", "base64"}  #: forms tried with the largest body by `make test`: as it is, and the longest request


@pytest.mark.parametrize(
    ("form", "size"),
    [
        *((form, 64 if form in LARGEST else 12) for form in FORMS),
        *(pytest.param(form, 64, marks=pytest.mark.full) for form in FORMS if form not in LARGEST),
    ],
)
def test_a_large_body_arrives_in_every_form(large, orders, name, form, size):
    body = b"\xc3\xbc" * (size // 2) * MIB
    path = f"/v1/queues/{name}/messages"
    match form:
        case "raw":
            answer = large.post(path, content=body)
        case "chunked":
            answer = large.post(path, content=(body[at : at + MIB] for at in range(0, len(body), MIB)))
        case "text":
            answer = large.post(path, content=b'{"body": "' + body + b'"}', headers=JSON)
        case "base64":
            answer = large.post(path, content=b'{"body_base64": "' + b64encode(body) + b'"}', headers=JSON)
        case "line":
            answer = large.post(f"{path}/batch", content=b'{"body": 1}\n{"body": "' + body + b'"}', headers=NDJSON)
            assert answer.json()["enqueued"] == 2
    assert answer.is_success, answer.text
    with orders.consumer() as consumer:
        assert consumer.claim(limit=2)[-1].body == body


@pytest.mark.parametrize("length", [MIB + 1, 10**15])
def test_a_raw_body_over_the_limit_is_refused_before_it_is_read(service, orders, length):
    status, said = raw_exchange(service, head(f"/v1/queues/{orders.name}/messages", f"content-length: {length}"))
    assert (status, said["code"], said["limit"]) == (413, "body_too_large", MIB)
    assert f"the body has {length:,} bytes, the limit is 1,048,576 (--max-body of `reliq api`)" in said["detail"]
    assert orders.stats().ready == 0


def test_a_chunked_body_over_the_limit_is_refused_while_it_comes(service, orders):
    start = head(f"/v1/queues/{orders.name}/messages", "transfer-encoding: chunked")
    status, said = raw_exchange(service, start, b"%x\r\n%b\r\n" % (MIB + 1, b"x" * (MIB + 1)))  # no last chunk
    assert (status, said["code"]) == (413, "body_too_large")
    assert "the body has more than 1,048,576 bytes, the limit is 1,048,576" in said["detail"]


def test_a_body_in_json_over_the_limit_names_it_and_a_text_of_the_limit_may_be_escaped(service, orders):
    path = f"/v1/queues/{orders.name}/messages"
    answer = service.post(path, json={"body": "x" * (MIB + 1)})
    assert problem(answer) == (413, "body_too_large")
    assert "1,048,577 bytes, the limit is 1,048,576" in answer.json()["detail"]
    assert service.post(path, content=json.dumps({"body": "\1" * MIB}), headers=JSON).status_code == 201


@pytest.mark.parametrize("where", [0, 5, MIB - 1, MIB, 2 * MIB + 3])
def test_text_that_is_not_utf8_is_refused_with_its_place(large, name, where):
    text = bytearray(b" " * (3 * MIB))
    text[where : where + 2] = b"\xc3\x28"
    answer = large.post(f"/v1/queues/{name}/messages", content=bytes(text), headers=JSON)
    assert problem(answer) == (400, "invalid_json")
    assert answer.json()["detail"].endswith(f"(byte {where})")


@contextlib.contextmanager
def held(client, name, size):
    """A request whose body has come up to its last byte."""
    with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as one:
        one.sendall(head(f"/v1/queues/{name}/messages", f"content-length: {size + 1}", "connection: close"))
        one.sendall(b"x" * size)
        yield one


def test_bodies_over_the_memory_for_all_of_them_are_refused_and_pass_later(url, name, app):
    path = f"/v1/queues/{name}/messages"
    with serving(url, max_body=2 * MIB, max_buffered=4 * MIB) as service:
        buffered = service.app.state.buffered
        with held(service, name, MIB) as first, held(service, name, MIB) as second:
            eventually(lambda: buffered.held == 2 * MIB)
            assert service.post(path, content=b"x" * 2 * MIB).status_code == 201  # exactly what is left
            with held(service, name, MIB):
                eventually(lambda: buffered.held == 3 * MIB)
                answer = service.post(path, content=b"x" * 2 * MIB)
                assert problem(answer) == (503, "overloaded")
                assert "max_buffered of `reliq api`" in answer.json()["detail"]
                chunked = service.post(path, content=(b"x" * MIB for _ in range(2)))
                assert problem(chunked) == (503, "overloaded")
                assert service.post(path, content=b"small").status_code == 201
            for one in (first, second):
                one.sendall(b"x")
                assert one.recv(100).startswith(b"HTTP/1.1 201")
        eventually(lambda: buffered.held == 0)
        assert service.post(path, content=b"x" * 2 * MIB).status_code == 201
    assert app.queue(name).stats().ready == 5


def test_a_batch_of_any_length_gives_back_what_is_enqueued(url, name, app):
    line = json.dumps({"body": "x" * MIB}).encode() + b"\n"
    with serving(url, max_buffered=8 * MIB) as service:
        answer = service.post(f"/v1/queues/{name}/messages/batch", content=(line for _ in range(40)), headers=NDJSON)
        assert answer.json()["enqueued"] == app.queue(name).stats().ready == 40
        assert service.app.state.buffered.held == 0


def test_a_batch_without_room_in_memory_says_what_is_enqueued(url, name, app):
    lines = json.dumps({"body": "x"}).encode() + b"\n" + b'{"body": "' + b"x" * 3 * MIB
    with serving(url, max_buffered=2 * MIB) as service:
        answer = service.post(f"/v1/queues/{name}/messages/batch", content=lines, headers=NDJSON)
        assert problem(answer) == (503, "overloaded")
        assert [one["status"] for one in answer.json()["results"]] == ["refused"]
    assert app.queue(name).stats().ready == 0
