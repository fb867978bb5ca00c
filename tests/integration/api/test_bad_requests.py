"""Invalid requests: each gets its answer, never a 500, never a traceback, never a side effect."""

import contextlib
import json
import socket
from typing import Any

import pytest

from reliq import ops
from tests.integration.api.serving import problem, raw_exchange, serving

JSON_TYPE = "application/json"
JSON = {"content-type": JSON_TYPE}


@pytest.fixture
def untouched(app, service):
    """Afterwards Redis is as empty as before."""
    yield
    assert app.store.call(ops.command("DBSIZE")) == 0


NAMES = {
    "a slash": "a%2Fb",
    "the next folder": "..%2F..",
    "nothing": "",
    "a newline at the end": "orders%0A",
    "NUL": "a%00b",
    "the hash tag": "%7Dx",
    "another queue's keys": "orders%7D:processing:%7Bx",
    "a pattern": "a*",
    "too long": "a" * 129,
    "no UTF-8": "%FF%FE",
    "not ASCII": "%C3%BC",
    "a leading dot": ".orders",
    "a space": "a%20b",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
@pytest.mark.parametrize("call", ["messages", "messages/batch", "leases", "pause", "dead/redrive"])
def test_names_that_the_grammar_refuses(service, untouched, name, call):
    answer = service.post(f"/v1/queues/{name}/{call}", json={})
    assert problem(answer) in [(400, "invalid_name"), (404, "not_found"), (405, "method_not_allowed")]


BROADCAST = "orders@broadcast.c" + 20 * "0"


@pytest.mark.parametrize(
    ("method", "call", "body"),
    [
        ("POST", "/messages", {"body": 1}),
        ("POST", "/messages/batch", [{"body": 1}]),
        ("POST", "/leases", {}),
        ("PATCH", "", {"max_length": 5}),
    ],
)
def test_a_queue_with_the_name_of_a_broadcast_is_refused(service, untouched, method, call, body):
    assert problem(service.request(method, f"/v1/queues/{BROADCAST}{call}", json=body)) == (400, "invalid_name")


BODIES = {
    "no JSON": (b"{nonsense", 400, "invalid_json"),
    "nothing": (b"", 400, "invalid_json"),
    "no UTF-8": (b'{"body": "\xff"}', 400, "invalid_json"),
    "UTF-16": ('{"body": 1}'.encode("utf-16"), 400, "invalid_json"),
    "NaN": (b'{"body": NaN}', 400, "invalid_json"),
    "a number beyond floats": (b'{"body": 1e400}', 422, "invalid_message"),
    "a number beyond floats, deep in it": (b'{"body": {"a": [1, -1e400]}}', 422, "invalid_message"),
    "a number of 5,000 digits": (b'{"body": ' + b"9" * 5000 + b"}", 422, "invalid_message"),
    "infinity": (b'{"body": {"a": Infinity}}', 400, "invalid_json"),
    "NaN, deep in it": (b'{"body": [[NaN]]}', 400, "invalid_json"),
    "a lone surrogate, deep in it": (rb'{"body": {"a": ["\ud800"]}}', 400, "invalid_json"),
    "a name that is a lone surrogate": (rb'{"body": {"\udfff": 1}}', 400, "invalid_json"),
    "a control character in a text": (b'{"body": {"a": "\x01"}}', 400, "invalid_json"),
    "a byte order mark": (b'\xef\xbb\xbf{"body": 1}', 400, "invalid_json"),
    "two bodies of one name": (b'{"body": 1, "body": 2}', 400, "invalid_json"),
    "one name written in two ways": (rb'{"body": 1, "b\u006fdy": 2}', 400, "invalid_json"),
    "a name twice, deep in it": (b'{"body": {"a": [{"b": 1, "c": ":", "b": 1}]}}', 400, "invalid_json"),
    "a header twice": (b'{"body": 1, "headers": {"a": "1", "a": "2"}}', 400, "invalid_json"),
    "a lone surrogate": (rb'{"body": "\ud800"}', 400, "invalid_json"),
    "two documents": (b'{"body": 1}{"body": 2}', 400, "invalid_json"),
    "65 levels": (b'{"body": ' + b"[" * 65 + b"]" * 65 + b"}", 400, "invalid_json"),
    "a million levels": (b'{"body": ' + b"[" * 1_000_000, 400, "invalid_json"),
    "a million levels of objects": (b'{"a":' * 300_000, 400, "invalid_json"),
    "brackets in an endless text": (b'{"body": "' + b"[" * 1_000_000, 400, "invalid_json"),
    "an endless escape": (b'{"body": "' + b'\\"[' * 300_000, 400, "invalid_json"),
    "a header that is reliq's": (b'{"body": 1, "headers": {"reliq-dead-from": "q"}}', 422, "invalid_message"),
    "a list": (b"[]", 422, "invalid_message"),
    "null": (b"null", 422, "invalid_message"),
    "no body": (b"{}", 422, "invalid_message"),
    "two bodies": (b'{"body": 1, "body_base64": "AA=="}', 422, "invalid_message"),
    "no base64": (b'{"body_base64": "%%%"}', 422, "invalid_message"),
    "a misspelled option": (b'{"body": 1, "delya": 5}', 422, "invalid_message"),
    "a negative delay": (b'{"body": 1, "delay": -1}', 422, "invalid_message"),
    "a delay of years": (b'{"body": 1, "delay": 1e9}', 422, "invalid_message"),
    "a delay beyond floats": (b'{"body": 1, "delay": 1e400}', 422, "invalid_message"),
    "a delay of 400 digits": (b'{"body": 1, "delay": ' + b"9" * 400 + b"}", 422, "invalid_message"),
    "a delay that is no time": (b'{"body": 1, "delay": "soon"}', 422, "invalid_message"),
    "a delay that is true": (b'{"body": 1, "delay": true}', 422, "invalid_message"),
    "headers that are a list": (b'{"body": 1, "headers": ["a"]}', 422, "invalid_message"),
    "a header that is a number": (b'{"body": 1, "headers": {"a": 1}}', 422, "invalid_message"),
    "a header without a name": (b'{"body": 1, "headers": {"": "a"}}', 422, "invalid_message"),
    "large headers": (json.dumps({"body": 1, "headers": {"a": "x" * 20_000}}).encode(), 422, "invalid_message"),
    "an empty deduplication key": (b'{"body": 1, "dedup_key": ""}', 422, "invalid_message"),
    "an id with a newline": (b'{"body": 1, "id": "a\\nb"}', 400, "invalid_name"),
    "an id of 129": (json.dumps({"body": 1, "id": "x" * 129}).encode(), 400, "invalid_name"),
    "a body over its limit": (json.dumps({"body": "x" * 1_048_577}).encode(), 413, "body_too_large"),
    "a request over its limit": (b'{"body": "' + b"x" * 6_400_000, 413, "body_too_large"),
}


@pytest.mark.parametrize(("content", "status", "code"), BODIES.values(), ids=BODIES.keys())
def test_json_that_is_no_message(service, untouched, name, content, status, code):
    answer = service.post(f"/v1/queues/{name}/messages", content=content, headers=JSON)
    assert problem(answer) == (status, code)
    assert len(answer.content) < 2000


HEADERS = {
    "two content types": ([("content-type", "text/plain"), ("content-type", "text/html")], 400, "invalid_header"),
    "two keys": ([("idempotency-key", "a"), ("idempotency-key", "b")], 400, "invalid_header"),
    "an option twice": ([("reliq-at-most", "1m"), ("reliq-at-most", "2m")], 400, "invalid_header"),
    "a header of the message without a name": ([("reliq-header-", "1")], 422, "invalid_message"),
    "a header of the message twice": ([("reliq-header-a", "1"), ("Reliq-Header-A", "2")], 400, "invalid_header"),
    "an attribute of an event twice": ([("ce-id", "1"), ("ce-id", "2")], 400, "invalid_header"),
    "an empty idempotency key": ([("idempotency-key", "")], 400, "invalid_header"),
    "an idempotency key with a space": ([("idempotency-key", "a b")], 400, "invalid_header"),
    "an endless idempotency key": ([("idempotency-key", "x" * 300)], 400, "invalid_header"),
    "a compressed body": ([("content-encoding", "gzip")], 415, "unsupported_media_type"),
    "a batch to the wrong place": ([("content-type", "application/x-ndjson")], 415, "unsupported_media_type"),
    "101 headers": ([(f"x-{number}", "a") for number in range(101)], 431, "headers_too_large"),
    "33 KiB of headers": ([("x-large", "a" * 33_000)], 431, "headers_too_large"),
    "a delay that is no number": ([("reliq-delay", "soon")], 422, "invalid_message"),
    "a delay that is not finite": ([("reliq-delay", "nan")], 422, "invalid_message"),
    "an endless delay": ([("reliq-delay", "inf")], 422, "invalid_message"),
    "an id with a space": ([("reliq-id", "a b")], 400, "invalid_name"),
    "half an event": ([("ce-specversion", "1.0"), ("ce-id", "1")], 422, "invalid_message"),
    "an event of the future": (
        [("ce-specversion", "9"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")], 422, "invalid_message",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("headers", "status", "code"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_that_make_no_sense(service, untouched, name, headers, status, code):
    answer = service.post(f"/v1/queues/{name}/messages", content=b"x", headers=headers)
    assert problem(answer) == (status, code)


EVENTS = {
    "no JSON": (b"{", 400, "invalid_json"),
    "data that cannot be read": (
        b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": 1e400}',
        422,
        "invalid_message",
    ),
    "an id twice": (
        b'{"specversion": "1.0", "id": "1", "id": "2", "source": "s", "type": "t"}',
        400,
        "invalid_json",
    ),
    "a list": (b"[]", 422, "invalid_message"),
    "no id": (b'{"specversion": "1.0", "source": "s", "type": "t"}', 422, "invalid_message"),
    "an id that is a number": (
        b'{"specversion": "1.0", "id": 1, "source": "s", "type": "t"}',
        422,
        "invalid_message",
    ),
    "an attribute that is a list": (b'{"specversion": "1.0", "id": ["1"]}', 422, "invalid_message"),
    "an attribute that is no attribute": (b'{"specversion": "1.0", "a b": "1"}', 422, "invalid_message"),
    "data twice": (b'{"specversion": "1.0", "data": 1, "data_base64": "AA=="}', 422, "invalid_message"),
}


@pytest.mark.parametrize(("content", "status", "code"), EVENTS.values(), ids=EVENTS.keys())
def test_what_is_no_event(service, untouched, name, content, status, code):
    headers = {"content-type": "application/cloudevents+json"}
    assert problem(service.post(f"/v1/queues/{name}/messages", content=content, headers=headers)) == (status, code)


@pytest.mark.parametrize("content", [b"{", b'{"a": 1, "a": 2}', b'{"a": 1e400}', b"[NaN]", rb'"\ud800"'])
def test_an_event_in_binary_mode_whose_data_is_no_json(service, untouched, name, content):
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t", **JSON}
    answer = service.post(f"/v1/queues/{name}/messages", content=content, headers=headers)
    assert problem(answer)[0] in (400, 422)


def test_in_a_batch_only_the_message_that_cannot_be_read_is_refused(service, app, name):
    lines = [b'{"body": 1}', b'{"body": 1e400}', b'{"body": {"a": 1, "a": 2}}', b'{"body": 2}']
    for content, kind in ((b"\n".join(lines), "application/x-ndjson"), (b"[" + b",".join(lines) + b"]", JSON_TYPE)):
        answer = service.post(f"/v1/queues/{name}/messages/batch", content=content, headers={"content-type": kind})
        assert problem(answer) == (422, "batch_incomplete")
        assert [one.get("code") for one in answer.json()["results"]] == [
            None, "invalid_message", "invalid_json", None,
        ]  # fmt: skip
    assert app.queue(name).stats().ready == 4


@pytest.mark.parametrize("call", ["leases", "leases/h0123456789abcdef0123/settle", "purge", "dead/redrive"])
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"{nonsense", "application/json"),
        (b"[" * 1_000_000, "application/json"),
        (b'{"\xff": 1}', "application/json"),
        (b'{"limit": NaN}', "application/json"),
        (b'{"unknown": 1}', "application/json"),
        (b'{"limit": 1, "limit": 2}', "application/json"),
        (b'{"confirm": "a", "confirm": "a", "ack": ["a"], "ack": ["b"]}', "application/json"),
        (b'{"limit": 1e400, "lease": 1e400}', "application/json"),
        (b"{}", "text/plain"),
        (b"x" * 6_400_000, "application/json"),
    ],
)
def test_calls_that_take_json_take_nothing_else(service, untouched, name, call, content, kind):
    answer = service.post(f"/v1/queues/{name}/{call}", content=content, headers={"content-type": kind})
    assert problem(answer)[0] in (400, 413, 422)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "reason=nix", "after=nonsense", "after=nan:1", "after=1:-5", "after=1_0:1"],
)
def test_pages_of_dead_letters_that_are_none(service, app, orders, query):
    orders.send("x")
    answer = service.get(f"/v1/queues/{orders.name}/dead?{query}")
    assert problem(answer) == (422, "invalid_request")


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/queues/a/messages"), ("DELETE", "/v1/queues"), ("PUT", "/")])
def test_a_method_that_a_path_does_not_have_is_405_with_those_allowed(service, untouched, method, path):
    answer = service.request(method, path)
    assert problem(answer) == (405, "method_not_allowed")
    assert answer.headers["allow"]


def test_the_methods_of_a_path_are_all_named(service, untouched):
    assert service.request("OPTIONS", "/v1/queues/a").headers["allow"] == "HEAD, GET, PATCH"


def test_a_query_that_is_refused_names_its_place(service, untouched):
    answer = service.get("/v1/queues/a/dead?limt=1")
    assert problem(answer) == (422, "invalid_request")
    assert [one["at"] for one in answer.json()["errors"]] == [["query", "limt"]]


@pytest.mark.parametrize("path", ["/v1", "/v2/queues", "/v1/queues/", "/v1/queues/a/b/c", "/v1//queues", "/%2e%2e/etc"])
def test_an_unknown_path_is_not_found(service, untouched, path):
    assert problem(service.get(path))[1] in ("not_found", "invalid_name")


def test_a_queue_that_is_not_there(service, untouched, name):
    for method, call in [
        ("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/dead"), ("POST", "/dead/redrive")
    ]:  # fmt: skip
        body: dict[str, Any] | None = {} if method == "POST" else None
        assert problem(service.request(method, f"/v1/queues/{name}{call}", json=body)) == (404, "queue_not_found")


# --- what no HTTP library would send ---------------------------------------------------------------------------------

HEAD = b"POST /v1/queues/orders/messages HTTP/1.1\r\nhost: localhost\r\n"
MALFORMED = {
    "no HTTP": (b"nonsense\r\n\r\n", 400, "invalid_http"),
    "two lengths": (HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx", 400, "invalid_http"),
    "a length and pieces": (
        HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_http",
    ),
    "a negative length": (HEAD + b"content-length: -1\r\n\r\n", 400, "invalid_http"),
    "a piece without a size": (HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\nx\r\n", 400, "invalid_http"),
    "a header with NUL": (HEAD + b"x-a: b\x00c\r\n\r\n", 400, "invalid_http"),
    "bytes in the path": (b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n", 400, "invalid_http"),
    "an endless header": (HEAD + b"x-endless: " + b"a" * 70_000, 431, "headers_too_large"),
    "another transfer-encoding": (
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", 400, "invalid_header",
    ),
    "two hosts": (HEAD + b"host: localhost\r\ncontent-length: 0\r\n\r\n", 400, "invalid_header"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "status", "code"), MALFORMED.values(), ids=MALFORMED.keys())
def test_bytes_that_are_no_request(service, untouched, data, status, code):
    answered, members = raw_exchange(service, data)
    assert (answered, members["code"]) == (status, code)


def test_a_trailer_is_no_header(service, app):
    body = b"b\r\n" + b'{"body": 1}' + b"\r\n0\r\nreliq-delay: 90\r\nauthorization: Bearer x\r\n\r\n"
    status, _ = raw_exchange(
        service, HEAD + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n" + body
    )
    assert status == 201
    assert app.queue("orders").stats().ready == 1


def test_a_body_in_pieces_without_end(service, untouched):
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    pieces = (HEAD + b"transfer-encoding: chunked\r\n\r\n", *[piece] * 40)
    status, members = raw_exchange(service, *pieces)
    assert (status, members["code"]) == (413, "body_too_large")


def test_clients_that_fall_silent_are_not_waited_for(url, app, name):
    prepared_record = (
        f"POST /v1/queues/{name}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf".encode()
    )
    with serving(url, header_timeout=0.2, body_timeout=0.2) as service:
        assert raw_exchange(service, prepared_record)[1]["code"] == "request_timeout"
        assert raw_exchange(service, prepared_record[:30])[1]["code"] == "request_timeout"
        assert raw_exchange(service)[1]["code"] == "request_timeout"
    assert app.queue(name).stats().ready == 0


def test_a_body_that_comes_byte_by_byte_is_not_waited_for(url, app, name):
    head = f"POST /v1/queues/{name}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n".encode()
    with (
        serving(url, body_timeout=0.3) as service,
        socket.create_connection(("127.0.0.1", service.base_url.port)) as connection,
    ):
        connection.sendall(head)
        connection.settimeout(0.1)
        answer = b""
        while b"request_timeout" not in answer:
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                answer += connection.recv(1 << 16)
    assert app.queue(name).stats().ready == 0


def test_an_unexpected_failure_tells_nothing(url, monkeypatch, name):
    from reliq_api.consume.polls import Polls

    def fail(*_):
        raise RuntimeError("secret of the service")

    monkeypatch.setattr(Polls, "take", fail)
    with serving(url) as service:
        answer = service.post(f"/v1/queues/{name}/leases", json={})
    assert problem(answer) == (500, "internal_error")
    assert "secret" not in answer.text
