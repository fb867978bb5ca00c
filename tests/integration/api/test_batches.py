"""POST .../messages/batch: a result for every message, in bounded memory."""

import json

import pytest

from tests.integration.api.serving import problem, serving
from tests.support.proxy import Proxy

NDJSON = {"content-type": "application/x-ndjson"}


def lines(*messages):
    return "".join(json.dumps(message) + "\n" for message in messages).encode()


def test_an_array_is_enqueued_in_its_order(post, orders):
    answer = post("messages/batch", [{"body": number} for number in range(5)])
    assert answer.status_code == 200
    assert (answer.json()["enqueued"], answer.json()["refused"]) == (5, 0)
    with orders.consumer() as consumer:
        messages = consumer.claim(limit=10)
        assert [message.json() for message in messages] == list(range(5))
        assert [message.id for message in messages] == [result["id"] for result in answer.json()["results"]]


def test_ndjson_comes_in_pieces_that_end_anywhere(service, orders):
    text = lines(*({"body": {"number": number, "text": "ü" * number}} for number in range(2500)))
    pieces = (text[start : start + 777] for start in range(0, len(text), 777))
    answer = service.post(f"/v1/queues/{orders.name}/messages/batch", content=pieces, headers=NDJSON)
    assert answer.json()["enqueued"] == orders.stats().ready == 2500


def test_the_last_line_needs_no_end_and_empty_lines_are_nothing(service, orders):
    answer = service.post(
        f"/v1/queues/{orders.name}/messages/batch", content=b'\n{"body": 1}\r\n\n {"body": 2}', headers=NDJSON
    )
    assert [result["status"] for result in answer.json()["results"]] == ["enqueued"] * 2
    assert orders.stats().ready == 2


def test_a_refused_message_keeps_no_other_back(service, orders):
    text = (
        lines({"body": 1}, {"bdy": 2}, {"body": 3, "id": "white space"}, {"body": 4, "dedup_key": "k"}) + b"{nonsense\n"
    )
    text += lines({"body": 5, "dedup_key": "k"}, {"body": "x" * 1_200_000})
    answer = service.post(f"/v1/queues/{orders.name}/messages/batch", content=text, headers=NDJSON)
    assert problem(answer) == (422, "batch_incomplete")
    results = answer.json()["results"]
    assert [result.get("code", result["status"]) for result in results] == [
        "enqueued", "invalid_message", "invalid_name", "enqueued", "invalid_json", "deduplicated", "body_too_large",
    ]  # fmt: skip
    assert results[5]["id"] == results[3]["id"]
    assert (answer.json()["enqueued"], answer.json()["deduplicated"], answer.json()["refused"]) == (2, 1, 4)
    assert orders.stats().ready == 2


def test_a_full_queue_ends_a_batch_and_says_what_is_in(service, orders):
    orders.configure(max_length=1500)
    text = lines(*({"body": number} for number in range(2500)))
    answer = service.post(f"/v1/queues/{orders.name}/messages/batch", content=text, headers=NDJSON)
    assert problem(answer) == (429, "queue_full")
    codes = [result.get("code", result["status"]) for result in answer.json()["results"]]
    assert codes[:2000] == ["enqueued"] * 1000 + ["queue_full"] * 1000
    assert answer.json()["enqueued"] == orders.stats().ready == 1000


def test_what_one_partition_has_taken_is_told_as_enqueued(post, half_full):
    orders, full, free = half_full
    answer = post("messages/batch", [{"body": number, "key": full if number % 3 else free} for number in range(7)])
    assert problem(answer) == (429, "queue_full")
    assert (answer.json()["enqueued"], answer.json()["refused"]) == (3, 4)
    results = answer.json()["results"]
    assert [one.get("code", one["status"]) for one in results] == [
        "queue_full" if number % 3 else "enqueued" for number in range(7)
    ]
    there = [orders.find(one["id"]).message.json() for one in results if one["status"] == "enqueued"]
    assert (there, orders.stats().ready) == ([0, 3, 6], 13)


def test_messages_whose_answer_was_lost_are_not_told_as_refused(redis_server, url, orders):
    cut = []

    def request(data):
        if b"marked" in data:
            cut.append(data)
        return data

    with (
        Proxy(redis_server.port, request=request, reply=lambda data: None if cut else data) as proxy,
        serving(proxy.url, send_timeout=0.3) as service,
    ):
        answer = service.post(f"/v1/queues/{orders.name}/messages/batch", json=[{"body": "marked"}] * 1001)
    assert problem(answer) == (504, "outcome_unknown")
    told = answer.json()
    assert (told["enqueued"], told["refused"], told["unknown"]) == (0, 0, 1000)
    assert {one["status"] for one in told["results"]} == {"unknown"}


def test_a_batch_has_a_largest_number_of_messages(url, app, name):
    with serving(url, max_batch=3) as service:
        answer = service.post(f"/v1/queues/{name}/messages/batch", json=[{"body": 1}] * 4)
    assert problem(answer) == (413, "batch_too_large")
    assert answer.json()["enqueued"] == app.queue(name).stats().ready == 3


def test_a_batch_of_events(service, orders):
    events = [{"specversion": "1.0", "id": str(n), "source": "/s", "type": "t", "data": n} for n in (1, 2, 2)]
    answer = service.post(
        f"/v1/queues/{orders.name}/messages/batch",
        content=json.dumps(events),
        headers={"content-type": "application/cloudevents-batch+json"},
    )
    assert [result["status"] for result in answer.json()["results"]] == ["enqueued", "enqueued", "deduplicated"]


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        (b'{"body": 1}', {"content-type": "application/json"}, (422, "invalid_request")),
        (b"[1, 2", {"content-type": "application/json"}, (400, "invalid_json")),
        (b"[]", {"content-type": "text/plain"}, (415, "unsupported_media_type")),
        (b"[]", {"content-type": "application/json", "idempotency-key": "k"}, (400, "invalid_header")),
        (b"[]", {"content-type": "application/json; charset=utf-16"}, (415, "unsupported_media_type")),
        (b"{" + b" " * 7_000_000, NDJSON, (413, "body_too_large")),
        (b"[" + b" " * 9_000_000 + b"]", {"content-type": "application/json"}, (413, "body_too_large")),
    ],
)
def test_what_is_no_batch(service, orders, content, headers, expected):
    answer = service.post(f"/v1/queues/{orders.name}/messages/batch", content=content, headers=headers)
    assert problem(answer) == expected
    assert orders.stats().ready == 0


@pytest.mark.slow
def test_a_batch_of_any_length_needs_no_more_memory(url, name):
    """Half a gigabyte of lines, refused one by one, so that Redis is not what is measured."""
    import psutil

    from tests.integration.api.serving import own_process

    piece = (b'{"unknown": "' + b"x" * 60_000 + b'"}\n') * 16
    with own_process(url) as (child, service):
        before = psutil.Process(child.pid).memory_info().rss
        answer = service.post(
            f"/v1/queues/{name}/messages/batch", content=(piece for _ in range(500)), headers=NDJSON, timeout=120
        )
        assert answer.json()["refused"] == 8000
        assert psutil.Process(child.pid).memory_info().rss - before < 64 * 1024 * 1024
