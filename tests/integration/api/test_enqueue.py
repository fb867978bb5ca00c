"""POST .../messages: what goes in is what a consumer gets."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from reliq import ops
from tests.integration.api.serving import problem

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "order.created"}


def claimed(queue):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.ack(*messages)
    return messages


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("Grüße 😀".encode(), "Grüße 😀"), ("Grüße".encode("latin-1"), "Grüße"), (b"plain", "plain")],
    ids=["UTF-8", "Latin-1", "ASCII"],
)
def test_headers_of_the_message_are_utf_8(service, orders, sent, kept):
    headers = {"reliq-header-name": sent, "reliq-key": sent}
    answer = service.post(f"/v1/queues/{orders.name}/messages", content=b"x", headers=headers)
    assert answer.status_code == 201
    (message,) = claimed(orders)
    assert (message.headers["name"], message.key) == (kept, kept)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ('{"body": {"order": 1}}', b'{"order": 1}'),
        ('{"body": "plain text"}', b"plain text"),
        (r'{"body": "\u00fc \"quoted\" \ud83d\ude00"}', 'ü "quoted" 😀'.encode()),
        ('{"body": 12345678901234567890.123456789012345678901}', b"12345678901234567890.123456789012345678901"),
        ('{"body": null}', b"null"),
        ('{"body": ""}', b""),
        ('{"body_base64": "AP8B"}', b"\x00\xff\x01"),
    ],
)
def test_a_json_body_is_kept_to_the_last_digit(service, orders, sent, received):
    answer = service.post(
        f"/v1/queues/{orders.name}/messages", content=sent.encode(), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201
    (message,) = claimed(orders)
    assert (message.id, message.body) == (answer.json()["id"], received)


def test_all_options_of_a_message(post, orders):
    options = {"body": "x", "id": "my-id", "headers": {"a": "b"}, "delay": "1h", "ttl": 7200, "dedup_key": "k"}
    assert post("messages", options).json() == {"id": "my-id", "deduplicated": False}
    assert orders.stats().delayed == 1
    assert orders.cancel("my-id")


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "text/plain", None])
def test_any_other_content_type_is_kept_byte_for_byte(service, orders, kind):
    data = bytes(range(256)) * 100
    headers = {"reliq-header-tenant": "a", "reliq-id": "raw-1"} | ({"content-type": kind} if kind else {})
    answer = service.post(f"/v1/queues/{orders.name}/messages", content=data, headers=headers)
    assert (answer.status_code, answer.json()["id"]) == (201, "raw-1")
    (message,) = claimed(orders)
    assert message.body == data
    assert message.headers == {"tenant": "a"} | ({"content-type": kind} if kind else {})


def test_options_of_a_raw_body_come_in_headers(service, orders):
    headers = {"content-type": "text/plain", "reliq-delay": "90", "reliq-dedup-key": "k", "reliq-ttl": "1d"}
    address = f"/v1/queues/{orders.name}/messages"
    first = service.post(address, content=b"x", headers=headers)
    second = service.post(address, content=b"x", headers=headers)
    assert orders.stats().delayed == 1
    assert (second.status_code, second.json()) == (200, {"id": first.json()["id"], "deduplicated": True})


def test_the_latest_wins_in_json_and_in_headers(service, post, orders):
    latest = {"dedup_key": "k", "replace": True}
    post("messages", {"body": "first", **latest})
    answer = post("messages", {"body": "second", **latest})
    assert (answer.status_code, answer.json()["deduplicated"]) == (201, False)
    headers = {"content-type": "text/plain", "reliq-dedup-key": "k", "reliq-replace": "true"}
    third = service.post(f"/v1/queues/{orders.name}/messages", content=b"third", headers=headers)
    (message,) = claimed(orders)
    assert (message.id, message.body) == (third.json()["id"], b"third")
    assert orders.stats().counters["replaced"] == 2


def test_a_debounced_message_is_replaced_in_json_in_headers_and_in_a_batch(service, post, orders):
    latest = {"dedup_key": "k", "replace": True, "debounce": "1h", "at_most": 7200}
    post("messages", {"body": "first", **latest})
    headers = {"reliq-dedup-key": "k", "reliq-replace": "True", "reliq-debounce": "3600", "reliq-at-most": "2h"}
    service.post(f"/v1/queues/{orders.name}/messages", content=b"second", headers=headers)
    post("messages/batch", [{"body": f"batch {number}", **latest} for number in range(3)])
    (listed,) = orders.delayed.list()
    assert listed.body == b"batch 2"


def test_a_lease_has_the_newest(service, post, orders):
    for number in range(3):
        post("messages", {"body": str(number), "dedup_key": "k", "replace": True})
    given = service.post(f"/v1/queues/{orders.name}/leases", json={"limit": 10}).json()
    assert [message["body"] for message in given["messages"]] == ["2"]
    settle = f"/v1/queues/{orders.name}/leases/{given['lease']}/settle"
    assert service.post(settle, json={"ack": [given["messages"][0]["id"]]}).status_code == 200
    assert orders.stats().processing == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"replace": True}, "replace without a dedup_key"),
        ({"dedup_key": "k", "debounce": "5s"}, "debounce is '5s' without replace"),
        ({"dedup_key": "k", "replace": True, "debounce": 0}, "debounce is 0"),
        (
            {"dedup_key": "k", "replace": True, "debounce": "5s", "at_most": "4s"},
            "at_most is '4s', shorter than debounce",
        ),
        ({"dedup_key": "k", "replace": True, "delay": 1}, "replace and delay 1 s are given"),
        ({"dedup_key": "k", "replace": "yes"}, "replace is 'yes': it must be true or false"),
    ],
)
def test_wrong_options_of_the_latest_are_refused(post, orders, options, text):
    answer = post("messages", {"body": "x", **options})
    assert problem(answer) == (422, "invalid_message")
    assert text in answer.json()["detail"]
    assert orders.stats().ready == orders.stats().delayed == 0


@pytest.mark.parametrize("media", ["text/plain", "application/json", "application/cloudevents+json"])
@pytest.mark.parametrize(
    ("name", "hint"),
    [("Reliq-Dealy", "is it Reliq-Delay?"), ("Reliq-Xyzzy", "a header of the message is Reliq-Header-")],
)
def test_an_unknown_option_header_is_refused(service, orders, media, name, hint):
    headers = {"content-type": media, name: "1h", "X-Reliq-Proxy": "of others"}
    for path in ("messages", "messages/batch") if media == "application/json" else ("messages",):
        answer = service.post(f"/v1/queues/{orders.name}/{path}", content=b'{"body": "x"}', headers=headers)
        assert problem(answer) == (400, "invalid_header")
        assert answer.json()["detail"].startswith(f"{name} is no option of a message; {hint}")
    assert orders.stats().ready == 0


MEMBER = 'give it as the member "{}" of the message'


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("Reliq-Delay", MEMBER.format("delay")),
        ("Reliq-Dedup-Key", MEMBER.format("dedup_key")),
        ("Reliq-Header-Tenant", 'give it in the member "headers" of the message'),
    ],
)
def test_option_headers_of_messages_in_json_are_refused_with_their_member(service, orders, name, where):
    flow = {"messages": [{"queue": orders.name, "message": {"body": 1}}]}
    queue = f"/v1/queues/{orders.name}"
    calls = [
        (f"{queue}/messages", "application/json", {"body": 1}),
        (f"{queue}/messages/batch", "application/json", [{"body": 1}]),
        (f"{queue}/messages/batch", "application/x-ndjson", {"body": 1}),
        ("/v1/topics/any.key/messages", "application/json", {"body": 1}),
        ("/v1/flows", "application/json", flow),
    ]
    for path, media, body in calls:
        answer = service.post(path, content=json.dumps(body), headers={"content-type": media, name: "60"})
        assert problem(answer) == (400, "invalid_header"), (path, media)
        assert answer.json()["detail"] == f"{name} is not read beside messages in JSON: {where}"
    assert orders.stats().ready == orders.stats().delayed == 0


def test_option_headers_of_events_in_structured_mode_are_refused(service, orders):
    for path, media, body in [
        ("messages", "application/cloudevents+json", EVENT),
        ("messages/batch", "application/cloudevents-batch+json", [EVENT]),
    ]:
        headers = {"content-type": media, "Reliq-Delay": "60"}
        answer = service.post(f"/v1/queues/{orders.name}/{path}", content=json.dumps(body), headers=headers)
        assert problem(answer) == (400, "invalid_header")
        assert answer.json()["detail"].startswith("Reliq-Delay is not read beside events in structured mode: send ")
    assert orders.stats().ready == orders.stats().delayed == 0


def test_an_event_in_binary_mode_takes_its_options_from_headers(service, orders):
    headers = {f"ce-{name}": value for name, value in EVENT.items()}
    headers |= {"content-type": "application/json", "Reliq-Delay": "60", "Reliq-Header-Tenant": "a"}
    assert service.post(f"/v1/queues/{orders.name}/messages", content=b"1", headers=headers).status_code == 201
    (delayed,) = orders.delayed.list()
    assert delayed.headers["tenant"] == "a"


def test_a_wrong_reliq_replace_is_refused(service, orders):
    headers = {"content-type": "text/plain", "reliq-dedup-key": "k", "reliq-replace": "yes"}
    answer = service.post(f"/v1/queues/{orders.name}/messages", content=b"x", headers=headers)
    assert problem(answer) == (422, "invalid_message")
    assert "replace is 'yes': it must be true or false" in answer.json()["detail"]


def test_order_keys_and_priorities(service, post, orders):
    post("messages", {"body": "first", "key": "ann"})
    post("messages", {"body": "second", "key": "ann"})
    headers = {"content-type": "text/plain", "reliq-key": "ann", "reliq-priority": "high"}
    service.post(f"/v1/queues/{orders.name}/messages", content=b"third", headers=headers)
    assert service.get(f"/v1/queues/{orders.name}").json()["waiting"] == 2
    given = []
    while messages := (lease := post("leases", {"limit": 10}).json())["messages"]:
        given += [message["body"] for message in messages]
        post(f"leases/{lease['lease']}/settle", {"ack": [message["id"] for message in messages]})
    assert given == ["first", "second", "third"]
    assert problem(post("messages", {"body": 1, "priority": "urgent"})) == (422, "invalid_message")
    assert problem(post("messages", {"body": 1, "key": ""})) == (422, "invalid_message")


def test_a_duplicate_answers_200_and_the_first_id(post, orders):
    first = post("messages", {"body": 1, "dedup_key": "k"})
    second = post("messages", {"body": 1, "dedup_key": "k"})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == {"id": first.json()["id"], "deduplicated": True}
    assert orders.stats().ready == 1


def test_a_duplicate_with_the_very_same_id_is_told_as_one(post):
    message = {"body": 1, "id": "same", "dedup_key": "k"}
    assert [post("messages", message).status_code for _ in range(2)] == [201, 200]


def test_both_modes_of_a_cloudevent_give_the_same_message(service, orders):
    address = f"/v1/queues/{orders.name}/messages"
    structured = {**EVENT, "tenant": "ä", "data": {"order": 1}}
    answer = service.post(
        address, content=json.dumps(structured), headers={"content-type": "application/cloudevents+json; charset=utf-8"}
    )
    assert answer.status_code == 201
    binary = {f"ce-{name}": value for name, value in EVENT.items()} | {"ce-tenant": "%C3%A4", "ce-id": "e-2"}
    answer = service.post(address, content=b'{"order": 1}', headers={**binary, "content-type": "application/json"})
    assert answer.status_code == 201
    one, two = claimed(orders)
    assert one.body == two.body == b'{"order": 1}'
    assert one.headers == {**two.headers, "ce-id": "e-1"}
    assert one.headers["ce-tenant"] == "ä"


def test_numbers_and_flags_of_an_event_are_texts_of_the_message(service, orders):
    service.post(
        f"/v1/queues/{orders.name}/messages",
        content=json.dumps({**EVENT, "line": 7, "page": 7.0, "late": True}),
        headers={"content-type": "application/cloudevents+json"},
    )
    (message,) = claimed(orders)
    assert [message.headers[f"ce-{name}"] for name in ("line", "page", "late")] == ["7", "7", "true"]


def test_the_same_event_is_enqueued_once(service, orders):
    headers = {f"ce-{name}": value for name, value in EVENT.items()}
    answers = [service.post(f"/v1/queues/{orders.name}/messages", content=b"x", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert orders.stats().ready == 1


@pytest.mark.parametrize(
    ("event", "body"),
    [
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text"}, b'"text"'),
        ({"data_base64": "AP8="}, b"\x00\xff"),
        ({}, b""),
        ({"data": "text", "datacontenttype": None, "dataschema": None}, b'"text"'),
    ],
)
def test_the_data_of_an_event(service, orders, event, body):
    service.post(
        f"/v1/queues/{orders.name}/messages",
        content=json.dumps({**EVENT, **event}),
        headers={"content-type": "application/cloudevents+json"},
    )
    assert [message.body for message in claimed(orders)] == [body]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"body": {"order": 1}, "delay": 5}', 415),
        ('{"body_base64": "YQ=="}', 415),
        ('{"order": 1}', 201),
        ('{"body": 1', 201),
        ('{"body": 1, "event": "paid"}', 201),
        ("{}", 201),
        ("payload=%7B%22body%22%3A+1%7D", 201),
    ],
)
def test_a_message_in_json_that_curl_sends_as_a_form_is_refused_and_no_other_form(service, orders, text, status):
    answer = service.post(
        f"/v1/queues/{orders.name}/messages",
        content=text,
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == status
    assert ("send it as application/json (curl --json)" in answer.text) == (status == 415)
    assert [message.body for message in claimed(orders)] == ([text.encode()] if status == 201 else [])


def test_the_trace_context_travels_with_the_message(post):
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    post("messages", {"body": "x"}, headers={"traceparent": parent, "tracestate": "vendor=1"})
    (message,) = post("leases").json()["messages"]
    assert message["headers"] == {"traceparent": parent, "tracestate": "vendor=1"}


@pytest.mark.parametrize("parent", ["00-" + "0" * 32 + "-00f067aa0ba902b7-01", "nonsense", "ff-" + "a" * 52])
def test_a_malformed_trace_context_is_ignored(post, parent):
    assert post("messages", {"body": "x"}, headers={"traceparent": parent}).status_code == 201
    assert post("leases").json()["messages"][0]["headers"] == {}


# --- Idempotency-Key -------------------------------------------------------------------------------------------------


def test_the_same_request_is_answered_the_same_again_and_marked(post, orders):
    first, second = (post("messages", {"body": 1}, headers={"idempotency-key": '"k"'}) for _ in "ab")
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert orders.stats().ready == 1


def test_the_same_request_sent_at_the_same_time_is_enqueued_once(post, orders):
    with ThreadPoolExecutor(16) as pool:
        sent = [pool.submit(post, "messages", {"body": 1}, headers={"idempotency-key": "k"}) for _ in range(16)]
    answers = [one.result() for one in sent]
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.json()["id"] for answer in answers if answer.status_code == 201}) == 1
    assert orders.stats().ready == 1


def test_another_body_with_the_same_key_is_refused(post, orders):
    post("messages", {"body": 1}, headers={"idempotency-key": "k"})
    answer = post("messages", {"body": 2}, headers={"idempotency-key": "k"})
    assert problem(answer) == (422, "idempotency_mismatch")
    assert orders.stats().ready == 1


def test_while_the_first_request_runs_a_second_is_told_so(post, app, orders):
    post("messages", {"body": 1}, headers={"idempotency-key": "k"})
    (key,) = records(app)
    record = json.loads(app.store.call(ops.command("GET", key)))
    app.store.call(ops.command("SET", key, json.dumps({**record, "status": 0, "answer": ""})))
    assert problem(post("messages", {"body": 1}, headers={"idempotency-key": "k"})) == (409, "request_in_progress")
    assert orders.stats().ready == 1


def records(app):
    return app.store.call(ops.command("KEYS", "*:idempotency:*"))


def test_a_crash_between_enqueue_and_record_enqueues_nothing_twice(post, app, orders):
    first = post("messages", {"body": 1}, headers={"idempotency-key": "k"})
    app.store.call(ops.command("DEL", *records(app)))
    second = post("messages", {"body": 1}, headers={"idempotency-key": "k"})
    assert (second.status_code, second.json()) == (200, {"id": first.json()["id"], "deduplicated": True})
    assert orders.stats().ready == 1


def test_a_refused_request_may_be_repeated_with_its_key(post, orders):
    orders.configure(max_length=1)
    orders.send("fills it")
    assert problem(post("messages", {"body": 1}, headers={"idempotency-key": "k"})) == (429, "queue_full")
    orders.purge()
    assert post("messages", {"body": 1}, headers={"idempotency-key": "k"}).status_code == 201
