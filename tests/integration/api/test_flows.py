"""Flows over HTTP."""

import asyncio
import threading
from typing import Any

import httpx
import pytest

from reliq.features.flows import http
from reliq_api.access import keyring
from reliq_api.app import create_app
from reliq_api.settings import Settings
from tests.integration.api.serving import problem, serving
from tests.integration.api.test_leases import leased
from tests.support.turns import Monitor

BELONGS = """no option '{}': it belongs into "message", as {{"queue": "orders", "message": {{"body": 1}}}}"""


def chain(queue: str) -> dict[str, Any]:
    return {
        "messages": [
            {"queue": queue, "message": {"body": {"part": 1}, "key": "k"}},
            {"queue": queue, "message": {"body": "two"}},
            {"queue": "other", "message": {"body": "end"}, "after": [0, 1.0], "on_failure": "run"},
        ]
    }


def test_a_flow_is_sent_shown_and_cancelled(service, app, orders):
    sent = service.post("/v1/flows", json=chain(orders.name))
    assert sent.status_code == 201
    flow, messages = sent.json()["id"], sent.json()["messages"]
    assert [one["queue"] for one in messages] == [orders.name, orders.name, "other"]
    assert (orders.stats().ready, app.queue("other").stats().waiting) == (2, 1)
    found = service.get(f"/v1/flows/{flow}").json()
    assert found.pop("opened_at") > 0
    members = found.pop("members")
    assert found == {"id": flow, "state": "open", "size": 3, "open": 3}
    assert members[2] == {
        "number": 2, "queue": "other", "id": messages[2]["id"], "state": "waiting", "after": [0, 1],
        "on_failure": "run", "flows": [],
    }  # fmt: skip
    assert [one["id"] for one in service.get("/v1/flows").json()["flows"]] == [flow]
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim(5))
    Monitor(app.store).tell_flows()
    states = [one["state"] for one in service.get(f"/v1/flows/{flow}").json()["members"]]
    assert states == ["handled", "handled", "open"]
    assert service.delete(f"/v1/flows/{flow}").status_code == 204
    Monitor(app.store).tell_flows()
    assert service.get(f"/v1/flows/{flow}").json()["state"] == "cancelled"
    assert problem(service.delete(f"/v1/flows/{flow}")) == (404, "flow_not_found")
    assert problem(service.get("/v1/flows/0123456789abcdef")) == (404, "flow_not_found")
    assert service.get("/v1/flows").json()["flows"] == []


@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([], (422, "invalid_request")),
        ([{"queue": "orders", "message": {"body": 1}, "after": [0]}], (422, "invalid_request")),
        ([{"queue": "orders", "message": {"body": 1}, "after": [-1]}], (422, "invalid_request")),
        ([{"queue": "orders", "message": {"body": 1}, "on_failure": "wait"}], (422, "invalid_request")),
        ([{"queue": "orders"}], (422, "invalid_request")),
        ([{"queue": "orders", "message": {"body": 1, "dedup_key": "x"}}], (422, "invalid_request")),
        ([{"queue": "no name", "message": {"body": 1}}], (400, "invalid_name")),
        ([{"queue": "orders", "message": {"body": 1, "delay": "x"}}], (422, "invalid_message")),
    ],
)
def test_what_is_no_flow_is_refused_and_sends_nothing(service, orders, messages, answer):
    before = [] if "after" in str(messages) or not messages else [{"queue": "orders", "message": {"body": 1}}]
    refused = service.post("/v1/flows", json={"messages": [*before, *messages]})
    assert problem(refused) == answer
    if answer[1] in ("invalid_name", "invalid_message") or "dedup_key" in str(messages):
        assert (refused.json()["index"], refused.json()["detail"][:22]) == (1, "message 1 of the flow:")
    assert orders.stats().ready == 0
    twice = b'{"messages": [{"queue": "other", "queue": "%s", "message": {"body": 1}}]}' % orders.name.encode()
    for no_json in (b"{", twice):
        assert problem(service.post("/v1/flows", content=no_json)) == (400, "invalid_json")
    assert orders.stats().ready == 0


@pytest.mark.parametrize("name", ["Idempotency-Key", "Reliq-Durability"])
def test_headers_that_a_flow_does_not_take_are_refused(service, orders, name):
    answer = service.post("/v1/flows", json=chain(orders.name), headers={name: "memory"})
    assert problem(answer) == (400, "invalid_header")
    assert answer.json()["detail"].startswith(f"a flow takes no {name}: ")
    assert orders.stats().ready == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"queue": "orders", "body": 1}, BELONGS.format("body")),
        ({"queue": "orders", "message": {"body": 1}, "delay": 5}, BELONGS.format("delay")),
        ({"queue": "orders", "on_failur": "run"}, "no option 'on_failur'; is it 'on_failure'?"),
        ({"queue": "orders", "message": {"body": 1, "dely": 5}}, "no option 'dely'; is it 'delay'?"),
    ],
)
def test_an_unknown_member_of_a_message_of_a_flow_is_told_where_it_belongs(service, wrong, says):
    answer = service.post("/v1/flows", json={"messages": [{"queue": "orders", "message": {"body": 1}}, wrong]})
    assert (answer.json()["detail"], answer.json()["index"]) == (f"message 1 of the flow: {says}", 1)


def test_other_unknown_members_of_a_flow_are_told_with_the_nearest(service):
    parent = {"queue": "orders", "lease": "h", "id": "a", "nam": "x"}
    answer = service.post("/v1/flows", json=chain("orders") | {"parent": parent})
    assert answer.json()["detail"] == "the parent of the flow: no option 'nam'; is it 'name'?"
    answer = service.post("/v1/flows", json={"mesages": []})
    assert answer.json()["detail"] == "the flow: no option 'mesages'; is it 'messages'?"


def test_a_full_queue_takes_no_flow(service, orders):
    orders.configure(max_length=1)
    assert problem(service.post("/v1/flows", json=chain(orders.name))) == (429, "queue_full")
    assert orders.stats().ready == 0


def test_a_key_sends_to_its_queues_and_looks_with_a_right_to_all(app, url, orders):
    def key(scope, queue):
        return app.store.run(keyring.create("test", (scope,), (queue,), None, 0.0))

    keys = [key("enqueue", orders.name), key("enqueue", "*"), key("metrics", orders.name), key("metrics", "*")]
    with serving(url) as service:

        def send(which):
            return service.post("/v1/flows", json=chain(orders.name), headers={"authorization": f"Bearer {which}"})

        assert [send(one).status_code for one in keys[:2]] == [403, 201]
        flow = send(keys[1]).json()["id"]
        for path, which in (("flows", keys[2]), (f"flows/{flow}", keys[2]), ("flows", keys[3])):
            answer = service.get(f"/v1/{path}", headers={"authorization": f"Bearer {which}"})
            assert answer.status_code == (200 if which == keys[3] else 403)
    assert orders.stats().ready == 2 * 2


def test_a_worker_over_http_opens_a_flow_that_those_behind_its_message_wait_for(service, app, orders, post):
    flow = service.post("/v1/flows", json=chain(orders.name)).json()["id"]
    lease, (first_id,) = leased(post, limit=1)
    parts = {"messages": [{"queue": "parts", "message": {"body": 1}}]}
    parent = {"queue": orders.name, "lease": lease, "id": first_id}
    first, second = (service.post("/v1/flows", json=parts | {"parent": parent}) for _ in range(2))
    assert (first.status_code, first.json()) == (201, second.json())
    post(f"leases/{lease}/settle", {"ack": [first_id]})
    with orders.consumer() as consumer, app.queue("parts").consumer() as others:
        consumer.ack(*consumer.claim(5))
        Monitor(app.store).tell_flows()
        members = service.get(f"/v1/flows/{flow}").json()["members"]
        assert sorted(one["state"] for one in members) == ["handled", "open", "waiting"]
        assert [(one["id"], one["flows"]) for one in members if one["flows"]] == [(first_id, [first.json()["id"]])]
        (part,) = others.claim(5)
        others.ack(part)
    Monitor(app.store).tell_flows()
    members = service.get(f"/v1/flows/{flow}").json()["members"]
    assert [one["state"] for one in members] == ["handled", "handled", "open"]
    late = service.post("/v1/flows", json=parts | {"parent": parent | {"name": "other"}})
    assert problem(late) == (409, "lease_lost")


def test_a_parent_needs_the_right_to_consume(app, url):
    key = app.store.run(keyring.create("test", ("enqueue",), ("*",), None, 0.0))
    parent = {"queue": "q", "lease": "x", "id": "y"}
    wanted = {"messages": [{"queue": "q", "message": {"body": 1}}], "parent": parent}
    with serving(url) as service:
        answer = service.post("/v1/flows", json=wanted, headers={"authorization": f"Bearer {key}"})
        assert problem(answer) == (403, "forbidden")


@pytest.mark.parametrize(("messages", "aside"), [(10, False), (2000, True)])
def test_a_large_flow_is_read_and_answered_beside_the_loop_that_serves_others(url, app, monkeypatch, messages, aside):
    threads: dict[str, int] = {}

    def noted(name: str) -> None:
        before = getattr(http, name)

        def call(*given: Any) -> Any:
            threads[name] = threading.get_ident()
            return before(*given)

        monkeypatch.setattr(http, name, call)

    for name in ("read_json", "encode", "read_message"):
        noted(name)

    async def post() -> httpx.Response:
        service = create_app(Settings(url=url, no_auth=True))
        flow = {"messages": [{"queue": "q", "message": {"body": number}} for number in range(messages)]}
        async with service.router.lifespan_context(service):
            transport = httpx.ASGITransport(service, client=("127.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.post("/v1/flows", json=flow)

    answer = asyncio.run(post())
    assert (answer.status_code, len(answer.json()["messages"])) == (201, messages)
    assert app.queue("q").stats().ready == messages
    loop = threading.get_ident()
    assert threads["read_message"] == loop
    assert ([threads["read_json"], threads["encode"]] == [loop, loop]) is not aside
    assert (loop in (threads["read_json"], threads["encode"])) is not aside
