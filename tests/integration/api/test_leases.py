"""Lease, settle, extend: consumption over HTTP."""

import json

import pytest

from reliq import ops
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops import command
from reliq_api.consume.leases import Outcome, settle
from tests.integration.api.serving import own_process, problem, serving
from tests.support.turns import Monitor
from tests.support.workers import eventually


def codes(answer):
    assert answer.status_code == 200, answer.text
    return {result["id"]: result["code"] for result in answer.json()["results"]}


def leased(post, limit=10, **options):
    answer = post("leases", {"limit": limit, **options})
    assert answer.status_code == 200, answer.text
    given = answer.json()
    return given["lease"], [message["id"] for message in given["messages"]]


def expire(app, name, lease):
    """Move the lease's end into the past."""
    app.store.call(command("SET", QueueKeys(name).lease(lease), 1))


def take_back(app):
    """What the monitor does with the message of a lease that ended; just after a start of Redis it waits a while."""
    monitor = Monitor(app.store)
    eventually(lambda: monitor.scan().reclaimed == 1)


def test_durations_are_seconds_or_texts(post, service, orders):
    first, second, third = orders.send_many(["1", "2", "3"])
    given = post("leases", {"limit": 3, "lease": "2m", "wait": "100ms"}).json()
    assert (given["lease_seconds"], len(given["messages"])) == (120.0, 3)
    lease = f"leases/{given['lease']}"
    assert post(f"{lease}/extend", {"lease": "1.5 h"}).json()["lease_seconds"] == 5400.0
    assert post(f"{lease}/sleep", {"id": first, "name": "nap", "seconds": "1d"}).json()["state"] == "sleeping"
    assert post(f"{lease}/wait", {"id": second, "signal": "go", "timeout": "2d"}).json()["state"] == "waiting"
    assert codes(post(f"{lease}/settle", {"retry": [{"id": third, "delay": "2h"}]})) == {third: "done"}
    due = {one.id: one.due_at for one in orders.delayed.list()}
    assert abs(due[first] - due[third] - 22 * 3_600_000) < 3_600_000
    breaker = service.put(f"/v1/queues/{orders.name}/breaker", json={"state": "open", "seconds": "1m"})
    assert breaker.json()["breaker"] == "open"
    for wait in ("5 parsecs", "2m"):
        answer = service.get(f"/v1/queues/{orders.name}/messages/{first}/result", params={"wait": wait})
        assert problem(answer) == (422, "invalid_request")
        assert answer.json()["detail"].startswith("wait is ")


def test_a_message_as_its_consumer_sees_it(post, orders):
    identity = orders.send({"order": 1}, headers={"tenant": "a"})
    given = post("leases", {"lease": 60}).json()
    (message,) = given["messages"]
    assert given["lease_seconds"] == 60
    assert message.pop("enqueued_at") > 1.6e12
    assert message == {
        "id": identity, "body": {"order": 1}, "encoding": "json", "headers": {"tenant": "a"}, "deliveries": 0,
        "failures": 0, "redelivered": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "encoding", "given"),
    [
        (b'{"n": 1}', "auto", ("json", {"n": 1})),
        (b'{"n": 1}', "text", ("text", '{"n": 1}')),
        (b'{"n": 1}', "base64", ("base64", "eyJuIjogMX0=")),
        (b'{"n": 1', "auto", ("text", '{"n": 1')),
        (b"17", "auto", ("text", "17")),
        (b"\xff\x00", "auto", ("base64", "/wA=")),
        (b"\xff\x00", "text", ("base64", "/wA=")),
        (b"[" * 10_000 + b"]" * 10_000, "auto", ("text", "[" * 10_000 + "]" * 10_000)),
        (b'["\xff"]', "auto", ("base64", "WyL/Il0=")),
    ],
)
def test_how_a_body_is_shown(post, orders, body, encoding, given):
    orders.send(body)
    (message,) = post("leases", {"encoding": encoding}).json()["messages"]
    assert (message["encoding"], message["body"]) == given


VALUES = [
    1, 1.5, -0.0, True, False, None, {}, [], {"a": [1, {"b": None}]}, [1], "", "1", "true", "null", '{"a": 1}', "[1]",
    "{", "[x", '"quoted"', " 1", "a\nb", "\u0000", "ü€😀", 10**30, 2**63, "x" * 10_000,
]  # fmt: skip


def given_back(post):
    (message,) = post("leases").json()["messages"]
    return message["encoding"], message["body"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_a_json_body_comes_back_as_the_json_it_was(post, value):
    encoding = "text" if isinstance(value, str) else "json"
    assert post("messages", {"body": value}).status_code == 201
    assert given_back(post) == (encoding, value)
    post("messages/batch", [{"body": value}])
    assert given_back(post) == (encoding, value)
    post("messages", {"body": value, "headers": {"content-type": "application/x-own"}})
    assert post("leases", {"encoding": "text"}).json()["messages"][0]["headers"] == {
        "content-type": "application/x-own"
    }


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_an_event_comes_back_as_the_json_it_was(post, service, orders, value, mode):
    if mode == "structured":
        event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": value}
        headers, content = {"content-type": "application/cloudevents+json"}, json.dumps(event)
        if value is None:
            pytest.skip("data that is null is no data")
    else:
        headers = {
            "content-type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "s",
            "ce-type": "t",
        }
        content = json.dumps(value)
    assert service.post(f"/v1/queues/{orders.name}/messages", content=content, headers=headers).status_code == 201
    assert given_back(post) == ("json", value)


@pytest.mark.parametrize(
    ("body", "kind", "given"),
    [
        (b"1", "text/plain", ("text", "1")),
        (b'{"a": 1}', "text/plain", ("text", '{"a": 1}')),
        (b'{"a": 1}', "application/octet-stream", ("json", {"a": 1})),
        (b"1", "application/octet-stream", ("text", "1")),
        (b"1", "application/vnd.own+json; charset=utf-8", ("json", 1)),
        (b"{nonsense", "application/vnd.own+json", ("text", "{nonsense")),
        (b'{"a": 1e400}', "application/vnd.own+json", ("text", '{"a": 1e400}')),
        (b"\xff", "application/vnd.own+json", ("base64", "/w==")),
        (b"\x00\xff", "application/octet-stream", ("base64", "AP8=")),
    ],
)
def test_any_other_body_comes_back_as_its_content_type_says(post, service, orders, body, kind, given):
    service.post(f"/v1/queues/{orders.name}/messages", content=body, headers={"content-type": kind})
    assert given_back(post) == given


def test_a_dead_letter_is_shown_in_the_same_form(post, service, orders):
    identity = post("messages", {"body": 1}).json()["id"]
    lease, _ = leased(post)
    post(f"leases/{lease}/settle", {"dead": [{"id": identity}]})
    letter = service.get(f"/v1/queues/{orders.name}/dead/{identity}").json()
    assert (letter["encoding"], letter["body"]) == ("json", 1)


def test_an_empty_queue_gives_no_lease_and_leaves_nothing_behind(post, orders):
    assert post("leases").json() == {"lease": None, "lease_seconds": 15.0, "messages": []}
    assert orders.stats().consumers == 0


def test_a_lease_has_no_more_than_an_answer_can_carry(post, orders):
    ids = orders.send_many([b"%03d" % number + b"x" * 250_000 for number in range(60)])
    _, first = leased(post, limit=100)
    _, second = leased(post, limit=100)
    assert first + second == ids
    assert len(first) == 33
    assert orders.stats().counters["released"] == 1  # a claim ends there too, with the message that exceeds it


def test_every_verb_of_settle(post, orders):
    orders.send_many([{"n": number} for number in range(5)])
    lease, ids = leased(post)
    answer = post(
        f"leases/{lease}/settle",
        {
            "ack": [ids[0]],
            "retry": [{"id": ids[1], "delay": 3600, "error": "not now"}],
            "dead": [{"id": ids[2], "reason": "malformed"}],
            "release": [ids[3], {"id": ids[4], "delay": 60}],
        },
    )
    assert codes(answer) == dict.fromkeys(ids, "done")
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (1, 0, 2, 1)
    assert (stats.counters["acked"], stats.counters["retried"], stats.counters["released"]) == (1, 1, 2)
    letter = orders.dead.get(ids[2])
    assert (letter.reason, letter.last_error.text) == ("rejected", "malformed")


def test_what_is_released_gives_its_token_back(post, orders):
    orders.configure(rate="2/h", burst=2)
    orders.send_many(range(3))
    lease, ids = leased(post)
    post(f"leases/{lease}/settle", {"ack": [ids[0]], "release": [ids[1]]})
    _, again = leased(post)
    assert again == [ids[1]]


def test_the_order_of_the_codes_is_that_of_the_request(post, orders):
    ids = orders.send_many(["a", "b", "c"])
    lease, _ = leased(post)
    answer = post(f"leases/{lease}/settle", {"ack": [ids[2], "unknown"], "dead": [{"id": ids[0]}], "release": [ids[1]]})
    assert [(one["id"], one["code"]) for one in answer.json()["results"]] == [
        (ids[2], "done"), ("unknown", "already"), (ids[0], "done"), (ids[1], "done"),
    ]  # fmt: skip


def test_a_repeated_settle_is_told_already_even_after_the_last_message(post, orders):
    orders.send("x")
    lease, ids = leased(post)
    assert [codes(post(f"leases/{lease}/settle", {"ack": ids}))[ids[0]] for _ in range(3)] == [
        "done", "already", "already",
    ]  # fmt: skip
    assert orders.stats().consumers == 0
    assert orders.stats().counters["acked"] == 1


def test_a_settle_at_another_queue_changes_nothing(post, service, orders):
    orders.send_many(["a", "b"])
    lease, (first, second) = leased(post)
    wrong = service.post(f"/v1/queues/other/leases/{lease}/settle", json={"ack": [first]})
    assert codes(wrong) == {first: "lost"}
    assert codes(post(f"leases/{lease}/settle", {"ack": [first, second]})) == {first: "done", second: "done"}
    assert orders.stats().counters["acked"] == 2


def test_two_messages_with_one_id_are_settled_one_by_one(post, orders):
    for body in "ab":
        orders.send(body, id="same")
    lease, ids = leased(post)
    assert ids == ["same", "same"]
    answer = post(f"leases/{lease}/settle", {"ack": ["same", "same", "same"]})
    assert [one["code"] for one in answer.json()["results"]] == ["done", "done", "already"]


def test_a_lease_that_ended_is_told_lost_and_its_message_goes_on(post, app, url, orders):
    orders.send("x")
    lease, ids = leased(post)
    expire(app, orders.name, lease)
    take_back(app)
    assert codes(post(f"leases/{lease}/settle", {"ack": ids})) == {ids[0]: "lost"}
    assert problem(post(f"leases/{lease}/extend")) == (409, "lease_lost")
    _, again = leased(post)
    assert again == ids


def test_extend_moves_the_end_of_the_lease(post, app, orders):
    orders.send("x")
    lease, ids = leased(post)
    expire(app, orders.name, lease)
    assert post(f"leases/{lease}/extend", {"lease": 600}).json() == {
        "lease": lease, "lease_seconds": 600, "cancelled": [],
    }  # fmt: skip
    assert Monitor(app.store).scan().reclaimed == 0
    assert codes(post(f"leases/{lease}/settle", {"ack": ids})) == {ids[0]: "done"}


def test_settling_some_neither_shortens_nor_extends_the_lease_of_the_others(post, app, orders):
    orders.send_many(["a", "b"])
    lease, ids = leased(post, lease=3600)
    deadline = command("GET", QueueKeys(orders.name).lease(lease))
    before = app.store.call(deadline)
    post(f"leases/{lease}/settle", {"ack": ids[:1]})
    assert app.store.call(deadline) == before


def test_a_settled_lease_cannot_be_extended_and_leaves_no_key_for_ever(post, app, orders):
    orders.send("x")
    lease, ids = leased(post)
    post(f"leases/{lease}/settle", {"ack": ids})
    assert problem(post(f"leases/{lease}/extend", {"lease": 3600})) == (409, "lease_lost")
    keys = QueueKeys(orders.name)
    assert app.store.call(command("EXISTS", keys.lease(lease))) == 0
    assert 0 < app.store.call(command("PTTL", keys.settled(lease))) <= 60_000


# --- a claim that Redis carries out later than anybody expects --------------------------------------------------------


def late_claim(app, keys, lease):
    """What a poll sends, from a connection that was believed dead."""
    app.store.call([ops.block(keys, lease, 0.01), ops.claim(keys, lease, 15.0, 5)])


def test_what_a_late_claim_brings_to_a_living_lease_outlives_its_end(post, app, orders):
    keys = QueueKeys(orders.name)
    orders.send("known")
    lease, ids = leased(post)
    late = orders.send("late")
    late_claim(app, keys, lease)
    assert codes(post(f"leases/{lease}/settle", {"ack": ids})) == {ids[0]: "done"}
    expire(app, orders.name, lease)
    take_back(app)
    assert leased(post)[1] == [late]


@pytest.mark.parametrize("ended_by", ["settle", "extend"])
def test_what_a_late_claim_brings_to_a_settled_lease_is_found(post, app, orders, ended_by):
    keys = QueueKeys(orders.name)
    orders.send("known")
    lease, ids = leased(post)
    if ended_by == "settle":
        post(f"leases/{lease}/settle", {"ack": ids})
    else:
        app.store.call(command("DEL", keys.processing(lease)))
        assert problem(post(f"leases/{lease}/extend")) == (409, "lease_lost")
    late = orders.send("late")
    app.store.call(ops.claim(keys, lease, 15.0, 5))
    assert (orders.stats().ready, orders.stats().processing) == (1, 0)
    late_claim(app, keys, lease)
    take_back(app)
    assert leased(post)[1] == [late]


def test_two_requests_settle_the_last_message_at_once(post, app, orders):
    orders.send("x")
    lease, ids = leased(post)
    keys = QueueKeys(orders.name)
    steps = [settle(keys, lease, [Outcome("ack", ids[0])], None) for _ in range(2)]
    held = app.store.call(next(steps[0])), app.store.call(next(steps[1]))
    requests = [one.send(elements) for one, elements in zip(steps, held, strict=True)]
    results = [finished(app, one, request) for one, request in zip(steps, requests, strict=True)]
    assert results == [["done"], ["already"]]


def finished(app, steps, request):
    try:
        while True:
            request = steps.send(app.store.call(request))
    except StopIteration as stop:
        return stop.value


def test_a_poison_message_ends_in_the_dead_letters(post, orders):
    orders.send("x")
    for _ in range(11):
        lease, ids = leased(post)
        assert codes(post(f"leases/{lease}/settle", {"retry": [{"id": ids[0], "delay": 0}]})) == {ids[0]: "done"}
    (letter,) = orders.dead.list()
    assert (letter.reason, letter.failures) == ("max_failures", 11)


def test_a_retry_without_a_delay_backs_off(post, orders):
    orders.send("x")
    lease, ids = leased(post)
    post(f"leases/{lease}/settle", {"retry": [{"id": ids[0]}]})
    assert (orders.stats().ready, orders.stats().delayed) == (0, 1)


def test_what_does_not_decode_never_reaches_a_consumer(post, app, orders):
    app.store.call(command("LPUSH", QueueKeys(orders.name).messages, b"\xc1nonsense"))
    orders.send("x")
    _, ids = leased(post)
    assert len(ids) == 1
    assert [letter.reason for letter in orders.dead.list()] == ["decode"]


def test_a_worker_cannot_be_robbed_by_its_id(post, orders):
    worker = new_owner()
    assert problem(post(f"leases/{worker}/settle", {"ack": ["x"]})) == (422, "invalid_request")
    assert problem(post(f"leases/{worker}/extend")) == (422, "invalid_request")


def test_a_lease_outlives_the_process_that_gave_it(url, app, orders):
    orders.send_many(["a", "b"])
    address = f"/v1/queues/{orders.name}/leases"
    with own_process(url) as (child, service):
        given = service.post(address, json={"limit": 2, "lease": 60}).json()
        child.kill()
    ids = [message["id"] for message in given["messages"]]
    with serving(url) as service:
        settle = f"{address}/{given['lease']}/settle"
        assert service.post(f"{address}/{given['lease']}/extend", json={"lease": 90}).status_code == 200
        assert codes(service.post(settle, json={"ack": ids[:1]})) == {ids[0]: "done"}
        assert codes(service.post(settle, json={"ack": ids})) == {ids[0]: "already", ids[1]: "done"}
    assert (orders.stats().processing, orders.stats().counters["acked"]) == (0, 2)


def test_any_process_of_the_service_can_settle(service, url, orders):
    orders.send_many(["a", "b", "c"])
    address = f"/v1/queues/{orders.name}/leases"
    given = service.post(address, json={"limit": 3}).json()
    ids = [message["id"] for message in given["messages"]]
    settle = f"{address}/{given['lease']}/settle"
    with serving(url) as other:
        assert codes(other.post(settle, json={"ack": ids[:2]})) == {ids[0]: "done", ids[1]: "done"}
        assert codes(service.post(settle, json={"ack": ids})) == {ids[0]: "already", ids[1]: "already", ids[2]: "done"}


def test_a_crashed_consumer_over_http_is_replaced_when_its_lease_ends(post, app, orders):
    orders.send("x")
    leased(post, lease=1)
    monitor = Monitor(app.store)
    eventually(lambda: monitor.scan().reclaimed == 1)
    given = post("leases").json()
    assert given["messages"][0]["redelivered"] is True


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"ack": []},
        {"ack": ["a"], "dead": [{"id": "a"}]},
        {"ack": ["with space"]},
        {"ack": ["x"] * 1001},
        {"ack": "x"},
        {"nack": ["x"]},
        {"retry": [{"id": "a", "delay": -1}]},
        {"retry": [{"id": "a", "delay": 1e10}]},
        {"dead": [{"reason": "no id"}]},
    ],
)
def test_what_cannot_be_settled(post, orders, wanted):
    orders.send("x")
    lease, _ = leased(post)
    assert problem(post(f"leases/{lease}/settle", wanted)) == (422, "invalid_request")
    assert orders.stats().processing == 1
