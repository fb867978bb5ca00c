"""Find, cancel and progress over HTTP."""

import time
from urllib.parse import quote

import pytest

from reliq.features.tracking.model import Cancellation
from tests.integration.api.serving import problem, serving
from tests.integration.api.test_leases import expire, leased
from tests.support.turns import Monitor


@pytest.fixture
def one(service, orders):
    """A call about one message."""

    def call(method, identity):
        return service.request(method, f"/v1/queues/{orders.name}/messages/{identity}")

    return call


def test_a_message_is_found_with_its_place_and_progress(one, post, orders):
    later = orders.send("xyz", delay="1h", headers={"tenant": "a"}, key="k")
    found = one("GET", later).json()
    assert (found["place"], found["why"], found["position"], found["progress"]) == (
        "delayed",
        "not due yet",
        None,
        None,
    )
    assert (found["message"]["headers"], found["message"]["size"], found["message"]["key"]) == ({"tenant": "a"}, 3, "k")
    orders.send("x")
    lease, (held,) = leased(post)
    post(f"leases/{lease}/progress", {"id": held, "progress": 0.4, "text": "page 12 of 30"})
    found = one("GET", held).json()
    assert (found["place"], found["consumer"]) == ("processing", lease)
    assert (found["progress"]["fraction"], found["progress"]["text"]) == (0.4, "page 12 of 30")
    assert problem(one("GET", "unknown")) == (404, "message_not_found")
    assert problem(one("DELETE", "unknown")) == (404, "message_not_found")


def test_the_answer_to_a_cancellation_is_exact(one, post, orders):
    ready, held = orders.send_many(["a", "b"])
    assert (one("DELETE", ready).status_code, one("GET", ready).status_code) == (200, 404)
    lease, ids = leased(post)
    assert ids == [held]
    answer = one("DELETE", held)
    assert (answer.status_code, answer.json()) == (202, {"result": "told"})
    assert post(f"leases/{lease}/extend").json()["cancelled"] == [held]
    post(f"leases/{lease}/settle", {"dead": [{"id": held, "reason": "no"}]})
    answer = one("DELETE", held)
    assert (problem(answer), answer.json()["result"]) == ((409, "message_done"), "done")
    assert one("DELETE", ready).json()["result"] == "unknown"


def extended(post, lease, identity):
    assert post(f"leases/{lease}/extend").json()["cancelled"] == [identity]


def asleep(post, lease, identity):
    assert post(f"leases/{lease}/sleep", {"id": identity, "name": "s", "seconds": 9}).json()["state"] == "cancelled"


def waiting(post, lease, identity):
    assert post(f"leases/{lease}/wait", {"id": identity, "signal": "s"}).json()["state"] == "cancelled"


@pytest.mark.parametrize("before", [None, extended, asleep, waiting])
@pytest.mark.parametrize("verb", ["retry", "release"])
def test_a_cancelled_message_that_its_consumer_puts_back_is_removed(one, post, orders, verb, before):
    first, other = orders.send_many(["a", "b"])
    lease, ids = leased(post, limit=2)
    assert orders.cancel(first) is Cancellation.TOLD
    if before:
        before(post, lease, first)
    back = [{"id": one, "delay": 60} for one in ids]
    assert post(f"leases/{lease}/settle", {verb: back}).json()["results"] == [
        {"id": first, "code": "cancelled"}, {"id": other, "code": "done"},
    ]  # fmt: skip
    stats = orders.stats()
    assert (stats.counters["cancelled"], stats.delayed, orders.find(first)) == (1, 1, None)
    assert one("GET", other).json()["place"] == "delayed"
    assert post(f"leases/{lease}/settle", {verb: back}).json()["results"] == [
        {"id": identity, "code": "already"} for identity in ids
    ]


def test_another_process_of_the_service_tells_cancelled_messages_that_are_put_back(post, orders, url):
    ids = orders.send_many(["a", "b", "c", "d"])
    lease, _ = leased(post, limit=4)
    for identity in ids:
        assert orders.cancel(identity) is Cancellation.TOLD
    acked, retried, dead, back = ids
    wanted = {"ack": [acked], "retry": [{"id": retried}], "dead": [{"id": dead}], "release": [back]}
    with serving(url) as another:
        answer = another.post(f"/v1/queues/{orders.name}/leases/{lease}/settle", json=wanted)
    assert [one["code"] for one in answer.json()["results"]] == ["done", "cancelled", "done", "cancelled"]
    assert orders.stats().counters["cancelled"] == 2


def test_many_are_cancelled_by_key_or_headers(post, orders):
    orders.send_many(["a", "b"], key="k")
    orders.send_many(["c", "d", "e"], headers={"tenant": "acme"})
    by_header = {"headers": {"tenant": "acme"}}
    assert post("cancel", {**by_header, "dry_run": True}).json() == {"cancelled": 3, "told": 0, "dry_run": True}
    assert orders.stats().ready == 5
    assert post("cancel", by_header).json() == {"cancelled": 3, "told": 0, "dry_run": False}
    assert post("cancel", {"key": "k"}).json()["cancelled"] == 2


@pytest.mark.parametrize("wanted", [{}, {"key": "k", "headers": {"a": "b"}}, {"headers": {}}])
def test_a_cancellation_needs_a_key_or_headers(post, orders, wanted):
    orders.send("x", key="k", headers={"a": "b"})
    assert problem(post("cancel", wanted)) == (422, "invalid_request")
    assert orders.stats().ready == 1


def test_a_checkpoint_reaches_the_next_consumer_whose_lease_is_valid(post, app, orders):
    orders.configure(max_deliveries=1)
    orders.send("x")
    lease, (held,) = leased(post)
    for report in ({"state": {"page": 12}}, {"progress": 0.5, "state": {"page": 13}}):
        assert post(f"leases/{lease}/progress", {"id": held, **report}).json() == {"id": held}
    expire(app, orders.name, lease)
    Monitor(app.store).scan()
    assert problem(post(f"leases/{lease}/progress", {"id": held, "state": 14})) == (409, "lease_lost")
    assert orders.stats().dead == 0  # it has reported something: it is not charged
    again = post("leases", {"limit": 1}).json()
    assert again["messages"][0]["state"] == {"page": 13}
    post(f"leases/{again['lease']}/settle", {"retry": [{"id": held, "delay": 0}]})
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.ack(message)
    assert message.failures == 1


def test_a_later_message_with_the_id_of_a_purged_one_has_no_state_over_http(post, orders):
    for body in ("first", "second"):
        orders.send(body, id="a")
        lease, (held,) = leased(post)
        if body == "first":
            post(f"leases/{lease}/progress", {"id": held, "state": [1, 2]})
        post(f"leases/{lease}/settle", {"retry": [{"id": held, "delay": 60 * (body == "first")}]})
        if body == "first":
            assert orders.purge() == 1
            time.sleep(0.002)  # it is sent at another ms
    assert post("leases", {"limit": 1}).json()["messages"][0].get("state") is None


def test_a_checkpoint_over_http_reaches_a_worker_after_a_retry_and_goes_with_the_ack(post, app, orders, client):
    orders.send("x")
    lease, (held,) = leased(post)
    post(f"leases/{lease}/progress", {"id": held, "state": [1, 2]})
    post(f"leases/{lease}/settle", {"retry": [{"id": held, "delay": 0}]})
    lease, _ = leased(post)
    assert orders.find(held).progress.state
    post(f"leases/{lease}/settle", {"ack": [held]})
    assert client.keys(f"*{held}*") == []


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({}, "invalid_request"),
        ({"text": "x"}, "invalid_request"),
        ({"progress": 1.5}, "invalid_request"),
        ({"progress": "0.5"}, "invalid_request"),
        ({"state": "x" * 1_100_000}, "invalid_message"),
    ],
)
def test_reports_that_cannot_be_stored_are_refused(post, orders, report, code):
    orders.send("x")
    lease, (held,) = leased(post)
    assert problem(post(f"leases/{lease}/progress", {"id": held, **report})) == (422, code)
    assert orders.find(held).progress is None


def test_a_report_about_a_settled_message_is_refused(post, orders):
    orders.send_many(["a", "b"])
    lease, (first, second) = leased(post, limit=2)
    post(f"leases/{lease}/settle", {"ack": [first]})
    assert problem(post(f"leases/{lease}/progress", {"id": first, "progress": 1})) == (409, "lease_lost")
    assert post(f"leases/{lease}/progress", {"id": second, "progress": 1}).status_code == 200


def test_messages_are_searched_for_a_text_and_the_answer_says_how_far(service, orders):
    orders.send_many(["x", "y"])
    later = orders.send({"city": "Köln"}, delay="1h", headers={"tenant": "a"})
    path = f"/v1/queues/{orders.name}/search"
    found = service.request("GET", path, params={"text": "Köln"}).json()
    (hit,) = found.pop("messages")
    assert found == {"looked": 3, "total": 3, "unread_bodies": 0, "complete": True}
    assert (hit["id"], hit["place"], hit["where"], hit["excerpt"]) == (later, "delayed", "body", '{"city":"Köln"}')
    assert hit["message"]["headers"] == {"tenant": "a"}
    only = service.request("GET", path, params={"text": "Köln", "place": "dead", "most": 1})
    assert only.json() == {"messages": [], "looked": 0, "total": 0, "unread_bodies": 0, "complete": True}
    assert problem(service.request("GET", "/v1/queues/none/search", params={"text": "x"}))[0] == 404
    for wrong in ({}, {"text": ""}, {"text": "x", "place": "processing"}, {"text": "x", "most": 2_000_000}):
        assert problem(service.request("GET", path, params=wrong)) == (422, "invalid_request")


@pytest.mark.parametrize("identity", ["order/7", "/", "a%2Fb", "..", "100%/x?y#z"])
def test_any_id_can_be_a_part_of_a_path(one, service, orders, identity):
    orders.send("x", id=identity, delay="1h")
    sent = quote(identity, safe="") if identity != ".." else "%2E%2E"
    assert one("GET", sent).json()["id"] == identity
    assert problem(one("GET", f"{sent}/result")) == (404, "no_result")
    assert one("GET", f"{sent}/output").json() == {"chunks": [], "more": False}
    assert problem(service.get(f"/v1/queues/{orders.name}/dead/{sent}")) == (404, "dead_letter_not_found")
    assert one("DELETE", sent).status_code == 200
    assert orders.stats().delayed == 0
