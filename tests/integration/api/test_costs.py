"""Costs and charges over HTTP."""

from reliq.model.keys import QueueKeys
from tests.integration.api.serving import problem
from tests.integration.api.test_leases import leased


def test_a_message_has_its_cost_and_a_lease_says_what_it_was(service, post, orders, client):
    orders.configure(rate="60/min", burst=100)
    sent = post("messages", {"body": "x", "cost": 30})
    assert sent.status_code == 201, sent.text
    lease, (identity,) = leased(post)
    flow = QueueKeys(orders.name).flow
    before = float(client.hget(flow, "full_at"))
    for _ in range(2):  # as after a lost answer
        assert post(f"leases/{lease}/charge", {"id": identity, "actual": 50}).json() == {"id": identity}
    assert round(float(client.hget(flow, "full_at")) - before) == 20_000
    assert post(f"leases/{lease}/charge", {"id": identity, "actual": -1}).status_code == 422
    late = post(f"leases/{lease}/charge", {"id": "another", "actual": 50})
    assert problem(late) == (409, "lease_lost")


def test_a_lease_says_what_its_messages_cost(service, post, orders):
    orders.send("x", cost=30)
    orders.send("y")
    messages = post("leases", {"limit": 10}).json()["messages"]
    assert [message.get("cost", 1) for message in messages] == [30, 1]


def test_a_wrong_cost_is_refused(service, post):
    answer = post("messages", {"body": "x", "cost": -3})
    assert problem(answer) == (422, "invalid_message")


def test_a_header_gives_the_cost_as_a_text(service, orders):
    sent = service.post(f"/v1/queues/{orders.name}/messages", content=b"x", headers={"reliq-cost": "30"})
    assert sent.status_code == 201, sent.text
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.cost == 30
        consumer.ack(message)


def test_a_whole_number_may_have_a_point(service, post, orders):
    assert post("messages", {"body": "x", "cost": 30.0}).status_code == 201
    batch = service.post(f"/v1/queues/{orders.name}/messages/batch", json=[{"body": "y", "cost": 3e1}])
    assert batch.json()["enqueued"] == 1
    answer = post("leases", {"limit": 10.0}).json()
    assert [message["cost"] for message in answer["messages"]] == [30, 30]
    charge = {"id": answer["messages"][0]["id"], "actual": 50.0}
    assert post(f"leases/{answer['lease']}/charge", charge).status_code == 200
