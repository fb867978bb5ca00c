"""The policy, the numbers and the lists of a queue with partitions over HTTP."""

import pytest

import reliq
from tests.integration.api.serving import serving


@pytest.fixture
def service(url):
    with serving(url) as client:
        yield client


def test_the_number_of_partitions_is_part_of_the_policy(app, service):
    answer = service.patch("/v1/queues/orders", json={"partitions": 4})
    assert (answer.status_code, answer.json()["partitions"]) == (200, 4)
    assert app.queue("orders").config().partitions == 4
    assert service.get("/v1/queues/orders").json()["config"]["partitions"] == 4
    assert service.patch("/v1/queues/orders", json={"partitions": None}).json()["partitions"] == 1


def test_a_further_change_is_refused_until_the_first_has_ended(app, service):
    orders = app.queue("orders")
    orders.configure(partitions=2)
    orders.send_many([reliq.NewMessage("body", key=f"k{number}") for number in range(20)])
    assert service.patch("/v1/queues/orders", json={"partitions": 4}).status_code == 200
    answer = service.patch("/v1/queues/orders", json={"partitions": 3})
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (409, "change_under_way", "5")
    assert "the change of queue 'orders' from 2 to 4 is still under way" in answer.json()["detail"]


@pytest.mark.parametrize("wrong", [0, 257, "4", 1.5])
def test_a_number_that_cannot_be_is_refused(service, wrong):
    answer = service.patch("/v1/queues/orders", json={"partitions": wrong})
    assert answer.status_code == 422
    assert "partitions" in answer.text


def test_each_partition_has_its_numbers(app, service):
    orders = app.queue("orders")
    orders.configure(partitions=4)
    orders.send_many(["body"] * 400)
    found = service.get("/v1/queues/orders/partitions").json()
    assert (found["count"], found["moving"]) == (4, False)
    assert [(one["name"], one["open"], one["stats"]["ready"]) for one in found["partitions"]] == [
        ("orders", True, 100), *((f"orders@partition.{number}", True, 100) for number in range(1, 4)),
    ]  # fmt: skip
    assert {one["stats"]["queue"] for one in found["partitions"]} == {"orders"}


def test_a_queue_without_partitions_is_its_only_one(app, service):
    app.queue("plain").send("body")
    (one,) = service.get("/v1/queues/plain/partitions").json()["partitions"]
    assert (one["name"], one["stats"]["ready"], one["keys_elsewhere"]) == ("plain", 1, 0)
    assert service.get("/v1/queues/none/partitions").status_code == 404


def test_the_list_of_queues_has_it_once_with_the_sum(app, service):
    app.queue("orders").configure(partitions=4)
    app.queue("orders").send_many(["body"] * 400)
    (one,) = service.get("/v1/queues").json()["queues"]
    assert (one["queue"], one["ready"]) == ("orders", 400)
    assert service.get("/v1/queues/orders").json()["ready"] == 400


@pytest.mark.parametrize("state", ["delayed", "dead"])
def test_lists_go_on_over_the_pages_of_many_partitions(app, service, state):
    orders = app.queue("orders")
    orders.configure(partitions=16)
    sent = orders.send_many(["body"] * 1600, delay="1h" if state == "delayed" else 0)
    if state == "dead":
        with orders.consumer() as consumer:
            while messages := consumer.claim(limit=1000):
                for message in messages:
                    consumer.dead(message, "no")
    ids: list[str] = []
    after, key = None, "messages" if state == "delayed" else "letters"
    while after is not None or not ids:
        query = {"limit": 500, **({"after": after} if after else {})}
        answer = service.get(f"/v1/queues/orders/{state}", params=query)
        assert answer.status_code == 200, answer.text
        ids += [one["id"] for one in answer.json()[key]]
        after = answer.json()["next"]
    assert sorted(ids) == sorted(sent)
