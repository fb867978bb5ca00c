"""Steps, sleeps, waits and signals over HTTP, for workers in other languages."""

from typing import get_args

import pytest

import reliq
from reliq.features.tracking.schemas import Found
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.policy import RunOver
from reliq_api.access import keyring
from tests.integration.api.serving import problem, serving
from tests.integration.api.test_leases import leased
from tests.support.turns import Monitor


def test_a_step_is_stored_once_and_its_first_result_stays(service, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    first = post(f"leases/{lease}/step", {"id": one, "name": "charge", "result": {"paid": 5}})
    assert first.json() == {"id": one, "name": "charge", "result": {"paid": 5}, "before": False}
    second = post(f"leases/{lease}/step", {"id": one, "name": "charge", "result": {"paid": 6}})
    assert second.json() == {"id": one, "name": "charge", "result": {"paid": 5}, "before": True}
    post(f"leases/{lease}/settle", {"release": [one]})
    lease, _ = leased(post)
    found = service.get(f"/v1/queues/{orders.name}/leases/{lease}/steps", params={"id": one}).json()
    assert found == {"id": one, "steps": [{"name": "charge", "result": {"paid": 5}, "state": "done"}]}
    post(f"leases/{lease}/settle", {"ack": [one]})
    again = post(f"leases/{lease}/step", {"id": one, "name": "pack", "result": 1})
    assert problem(again) == (409, "lease_lost")


def test_a_sleep_does_not_take_the_name_of_a_step(service, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    post(f"leases/{lease}/step", {"id": one, "name": "n", "result": 1})
    refused = post(f"leases/{lease}/sleep", {"id": one, "name": "n", "seconds": 60})
    assert problem(refused) == (422, "invalid_message")
    assert "'n' of this message is done: give each step and sleep a name of its own" in refused.json()["detail"]
    assert post(f"leases/{lease}/step", {"id": one, "name": "n"}).json()["before"] is True


def test_the_record_of_another_message_with_this_id_is_told_before_a_step_is_done(service, client, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    post(f"leases/{lease}/step", {"id": one, "name": "charge", "result": 5})
    followed, head = QueueKeys(orders.name).followed, f"\n{one}"
    client.hset(followed, head, "1 7 -")  # sent at another time
    for said in (
        service.get(f"/v1/queues/{orders.name}/leases/{lease}/steps", params={"id": one}),
        post(f"leases/{lease}/step", {"id": one, "name": "charge", "result": 6}),
    ):
        assert problem(said) == (422, "invalid_message")
        assert "is of another message with this id" in said.json()["detail"]


def test_a_python_handler_goes_on_where_a_worker_over_http_was(post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    post(f"leases/{lease}/step", {"id": one, "name": "charge", "result": 5})
    post(f"leases/{lease}/settle", {"release": [one]})
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.step("charge", lambda: 6) == 5
        consumer.ack(message)


def test_a_lease_that_is_over_records_nothing(client, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    client.delete(QueueKeys(orders.name).lease(lease))
    step, sleep = {"id": one, "name": "s"}, {"id": one, "name": "s", "seconds": 1}
    assert problem(post(f"leases/{lease}/step", step)) == (409, "lease_lost")
    assert problem(post(f"leases/{lease}/sleep", sleep)) == (409, "lease_lost")
    assert problem(post(f"leases/{lease}/wait", {"id": one, "signal": "s"})) == (409, "lease_lost")
    assert client.hlen(QueueKeys(orders.name).followed) == 0


def test_a_message_sleeps_and_is_leased_again_when_it_is_due(app, post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    assert post(f"leases/{lease}/sleep", {"id": one, "name": "night", "seconds": 3600}).json()["state"] == "sleeping"
    stats = orders.stats()
    assert (stats.delayed, stats.processing, stats.missing) == (1, 0, 0)
    orders.delayed.run(one)
    Monitor(app.store).promote()
    lease, ids = leased(post)
    assert ids == [one]
    assert post(f"leases/{lease}/sleep", {"id": one, "name": "night", "seconds": 3600}).json()["state"] == "over"


def test_a_message_waits_for_its_signal(service, post, orders):
    one = orders.send("x", headers={"order": "7"})
    lease, _ = leased(post)
    assert post(f"leases/{lease}/wait", {"id": one, "signal": "approval"}).json()["state"] == "waiting"
    (parked,) = service.get(f"/v1/queues/{orders.name}/parked").json()["messages"]
    found = service.get(f"/v1/queues/{orders.name}/messages/{parked['id']}").json()
    assert found["place"] == "parked"
    assert {*get_args(Found.model_fields["place"].annotation)} == {*map(str, Place)}
    assert (parked["id"], parked["signal"], parked["until"], parked["headers"]) == (
        one,
        "approval",
        None,
        {"order": "7"},
    )
    assert post(f"messages/{one}/signals", {"name": "approval", "value": {"by": "ann"}}).json() == {"taken": True}
    assert post(f"messages/{one}/signals", {"name": "approval"}).json() == {"taken": False}
    lease, _ = leased(post)
    assert post(f"leases/{lease}/wait", {"id": one, "signal": "approval"}).json() == {
        "id": one,
        "state": "given",
        "value": {"by": "ann"},
    }
    post(f"leases/{lease}/settle", {"ack": [one]})
    late = post(f"messages/{one}/signals", {"name": "approval"})
    assert problem(late) == (409, "signal_refused")
    assert late.json()["outcome"] == "ended"


def test_a_one_time_link_needs_no_key(url, app):
    app.store.run(keyring.create("test", ("operate",), ("nothing",), None, 0.0))
    queue = app.queue("orders")
    queue.send("x")
    with serving(url) as service, queue.consumer() as consumer:
        assert problem(service.post("/v1/queues/orders/messages/x/signals", json={"name": "a"}))[0] == 401
        (message,) = consumer.claim()
        path = message.link("approval")
        assert problem(service.post(path[:-3] + "AAA", json={"value": 1})) == (409, "signal_refused")
        assert service.get(path).status_code == 405
        assert service.post(path, json={"value": {"ok": True}}).json() == {"taken": True}
        assert service.post(path, json={"value": {"ok": False}}).json() == {"taken": False}
        assert message.wait("approval") == {"ok": True}
        consumer.ack(message)
        assert problem(service.post(path, json={})) == (409, "signal_refused")


def test_the_page_of_the_parked_messages_gives_a_signal(service, orders):
    one = orders.send("x")
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(RunOver):
            message.wait("approval", timeout="1h")
    page = service.get(f"/queues/{orders.name}/parked").text
    assert one in page
    assert "approval" in page
    assert "/parked" in service.get(f"/queues/{orders.name}").text
    form = {"id": one, "signal": "approval", "value": '{"by": "ann"}'}
    origin = {"origin": str(service.base_url).rstrip("/")}
    answer = service.post(f"/queues/{orders.name}/parked/signal", data=form, headers=origin)
    assert answer.headers["location"].endswith(f"/queues/{orders.name}/parked?notice=signal-given")
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.wait("approval") == {"by": "ann"}
        consumer.ack(message)
    answer = service.post(f"/queues/{orders.name}/parked/signal", data=form, headers=origin)
    assert answer.headers["location"].endswith("notice=signal-refused")
    assert isinstance(orders.stats(), reliq.Stats)


def test_a_message_that_was_cancelled_meanwhile_does_not_rest(post, orders):
    one = orders.send("x")
    lease, _ = leased(post)
    assert orders.cancel(one).value == "told"
    assert post(f"leases/{lease}/wait", {"id": one, "signal": "s"}).json()["state"] == "cancelled"
    assert post(f"leases/{lease}/sleep", {"id": one, "name": "s", "seconds": 9}).json()["state"] == "cancelled"
    post(f"leases/{lease}/settle", {"ack": [one]})
    stats = orders.stats()
    assert (stats.parked, stats.delayed, stats.processing, stats.missing) == (0, 0, 0, 0)
