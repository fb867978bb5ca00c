"""What is wrong with a request is said in the words of the library, with the value and what to do."""

import json

import pytest

from tests.integration.api.serving import JSON, serving

LEASES = "/v1/queues/orders/leases"
SETTLE = f"{LEASES}/h3f9c2d1e8a7b6c5d4e3f/settle"
QUEUE = "/v1/queues/orders"
A_DURATION = 'seconds, or a text such as "90s"'
LENGTH = 'write seconds, or a number and a unit such as "90s" or "1h"'


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/v1/queues/orders/messages", {"body": 1, "delay": "1 week"}, f"delay is '1 week': {LENGTH}"),
        (
            "POST",
            "/v1/queues/orders/messages",
            {"body": 1, "delay": -5},
            "delay is -5: it must be between 0 seconds and 366 days",
        ),
        ("POST", "/v1/queues/orders/messages", {"body": 1, "dely": 5}, "no option 'dely'; is it 'delay'?"),
        ("POST", "/v1/queues/orders/messages", {"order": 1}, "no option 'order': the message is the value of \"body\""),
        ("POST", "/v1/queues/orders/messages", {"body": 1, "order": 1}, "no option 'order'"),
        ("POST", "/v1/queues/orders/messages", b"", "the body is empty"),
        ("POST", "/v1/queues/orders/messages/batch", b" ", "the body is empty"),
        ("POST", LEASES, {"wait": "1 week"}, f"wait is '1 week': {LENGTH}"),
        ("POST", LEASES, {"wait": None}, f"wait is null: it must be {A_DURATION}"),
        ("POST", LEASES, {"wait": True}, f"wait is true: it must be {A_DURATION}"),
        ("POST", SETTLE, {"retry": [{"id": "a", "delay": [5]}]}, f"retry.0.delay must be {A_DURATION}"),
        ("PATCH", QUEUE, {"max_bytes": True}, 'max_bytes is true: it must be bytes, or a text such as "8MiB"'),
        ("PATCH", QUEUE, {"dead_max_age": {}}, f"dead_max_age must be {A_DURATION}"),
        ("POST", LEASES, {"lmit": 10}, "no option 'lmit'; is it 'limit'?"),
        ("POST", LEASES, {"limit": 0}, "limit is 0: it must be at least 1"),
        ("POST", LEASES, {"limit": 1001}, "limit is 1001: it must be at most 1000"),
        ("POST", LEASES, None, 'send a JSON object, such as {"limit":1}'),
        ("POST", LEASES, [1], 'send a JSON object, such as {"limit":1}'),
        ("POST", SETTLE, {"retry": [{"id": "a", "dely": 5}]}, "retry.0: no option 'dely'; is it 'delay'?"),
        (
            "POST",
            SETTLE,
            {"retry": [{"id": "a", "delay": -5}]},
            "retry.0.delay is -5: it must be between 0 seconds and 366 days",
        ),
        (
            "POST",
            SETTLE,
            {"ack": ["a b"]},
            "message id 'a b': use 1 to 128 printable ASCII characters without spaces",
        ),
        ("POST", f"{LEASES}/hxxx/settle", {"ack": ["a"]}, "'hxxx' is not the id of a lease"),
        (
            "PUT",
            "/v1/queues/orders/bindings/a*",
            None,
            "pattern 'a*': * and # stand for whole words, not for parts of one as in 'a*'",
        ),
        (
            "POST",
            "/v1/topics/a..b/messages",
            {"body": 1},
            (
                "routing key 'a..b': use words with dots in between, none of them empty, at most 255 bytes, no blanks, "
                "such as order.created.eu"
            ),
        ),
        (
            "POST",
            "/v1/queues/orders/messages/batch",
            {"messages": [{"body": 1}]},
            "the body is not an array: send the messages themselves as one, [{...}, {...}]",
        ),
        ("GET", "/v1/queues/orders/dead?limit=abc", None, "limit is 'abc': it must be a whole number"),
        ("GET", "/v1/queues/orders/dead?limt=10", None, "no option 'limt'; is it 'limit'?"),
        ("GET", "/v1/queues/orders/dead?limt=10&_=1", None, "no option 'limt'; is it 'limit'?"),
        ("POST", "/v1/topics/a/messages?mandatry=true", {"body": 1}, "no option 'mandatry'; is it 'mandatory'?"),
        ("POST", LEASES, {"limit": 1.5}, "limit is 1.5: it must be a whole number"),
        ("POST", LEASES, {"limit": None}, "limit is null: it must be a whole number"),
        ("POST", SETTLE, {"retry": ["a"]}, "retry.0 is 'a': it must be an object"),
        ("POST", SETTLE, {"retry": [{"delay": 5}]}, "retry.0.id is missing"),
        ("POST", SETTLE, {"ack": {"id": "a"}}, "ack must be an array"),
        ("POST", SETTLE, {"retry": [{"id": "a", "error": 5}]}, "retry.0.error is 5: it must be a text"),
        ("POST", "/v1/queues/orders/dead/redrive", {"dry_run": "x"}, "dry_run is 'x': it must be true or false"),
        (
            "POST",
            "/v1/workers/x/dance",
            None,
            "instruction is 'dance': it must be 'pause', 'resume' or 'stop'",
        ),
        ("PUT", "/v1/queues/orders/schedules/s", {"body": 1}, "when is missing"),
        ("GET", "/v1/nothing", None, "there is no call GET /v1/nothing: /openapi.json has all of them"),
        ("PUT", LEASES, None, f"there is no call PUT {LEASES}: /openapi.json has all of them"),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_library(service, method, path, body, says):
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    answer = service.request(method, path, content=content, headers={} if content is None else JSON)
    assert answer.json()["detail"] == says


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"delay": True}, f"delay is true: it must be {A_DURATION}"),
        ({"ttl": {}}, f"ttl must be {A_DURATION}"),
        ({"priority": 3}, "priority is 3: it must be one of high, normal, low"),
        ({"cost": 1.5}, "cost is 1.5: it must be a whole number"),
        ({"replace": None}, "replace is null: it must be true or false"),
        ({"cost": True}, "cost is true: it must be a whole number"),
        ({"headers": {"a": 1}}, "headers must be an object of texts"),
        ({"headers": "x"}, "headers is 'x': it must be an object of texts"),
        ({"key": 5}, "key is 5: it must be a text"),
        ({"body": 1e300, "id": ["x"]}, "id must be a text"),
    ],
)
def test_a_value_of_a_wrong_type_is_said_of_messages_wherever_they_are(service, members, says):
    message = {"body": 1, **members}
    for path in (f"{QUEUE}/messages", "/v1/topics/a/messages"):
        assert service.post(path, json=message).json()["detail"] == says
    (result,) = service.post(f"{QUEUE}/messages/batch", json=[message]).json()["results"]
    assert result["detail"] == says
    flow = service.post("/v1/flows", json={"messages": [{"queue": "orders", "message": message}]})
    assert flow.json()["detail"] == f"message 0 of the flow: {says}"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"3", "the message is 3: it must be an object"),
        (b"[]", "the message must be an object"),
        (b'{"body": 1e999}', "the message cannot be read: Number out of range - at `$[...]`"),
    ],
)
def test_what_is_no_message_is_told(service, content, says):
    assert service.post(f"{QUEUE}/messages", content=content, headers=JSON).json()["detail"] == says


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (3, "the event is 3: it must be an object"),
        ({"datacontenttype": 5}, "datacontenttype is 5: it must be a text"),
        ({"data_base64": 5}, "data_base64 is 5: it must be a text"),
        ({"id": 5}, "id is 5: it must be a text"),
        ({"shop": 1.5}, "shop is 1.5: it must be a text, a whole number, or true or false"),
        ({"shop": ["a"]}, "shop must be a text, a whole number, or true or false"),
    ],
)
def test_a_value_of_a_wrong_type_is_said_of_events(service, members, says):
    event = {"specversion": "1.0", "id": "a", "source": "s", "type": "t"}
    content = json.dumps({**event, **members} if isinstance(members, dict) else members).encode()
    answer = service.post(
        f"{QUEUE}/messages", content=content, headers={"content-type": "application/cloudevents+json"}
    )
    assert answer.json()["detail"] == says


@pytest.mark.parametrize(
    ("flow", "says"),
    [
        (3, "the flow is 3: it must be an object"),
        ({}, "messages is missing"),
        ({"messages": 3}, "messages is 3: it must be an array"),
        ({"messages": [3]}, "messages.0 is 3: it must be an object"),
        ({"messages": [{"queue": "orders"}]}, "messages.0.message is missing"),
        ({"messages": [{"queue": 5, "message": {}}]}, "messages.0.queue is 5: it must be a text"),
        (
            {"messages": [{"queue": "orders", "message": {}, "after": ["a"]}]},
            "messages.0.after.0 is 'a': it must be a whole number",
        ),
        (
            {"messages": [{"queue": "orders", "message": {"body": 1}, "after": [0.5]}]},
            "message 0 of the flow is after [0.5]: name earlier ones",
        ),
        (
            {"messages": [{"queue": "orders", "message": {}, "on_failure": "x"}]},
            "messages.0.on_failure is 'x': it must be one of fail, skip, run",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_said_of_flows(service, flow, says):
    assert service.post("/v1/flows", json=flow).json()["detail"] == says


def test_a_cancel_of_nothing_says_what_to_give(service, app):
    app.queue("orders").send("x")
    answer = service.post("/v1/queues/orders/cancel", json={})
    assert answer.json()["detail"] == "give key or headers: messages with all of these headers are cancelled"


def test_the_limit_of_a_body_has_the_name_of_the_command(app):
    with serving(app.url, max_body=1000) as service:
        answer = service.post("/v1/queues/orders/messages", content=b"x" * 1001)
    assert "or raise --max-body of `reliq api` (at most 64 MiB)" in answer.json()["detail"]
