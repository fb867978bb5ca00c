"""The dashboard shows a queue with partitions as one queue, and its partitions on demand."""

import re
from html import unescape

import httpx
import pytest

import reliq
from reliq.model.keys import QueueKeys
from reliq.protocol.stats import stats_of
from tests.integration.api.serving import serving
from tests.integration.ui.test_messages import fields_of
from tests.integration.ui.test_pages import text_of
from tests.support.workers import eventually

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def client(url):
    with (
        serving(url) as service,
        httpx.Client(base_url=service.base_url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=30) as client,
    ):
        yield client


def one_in_each(orders: reliq.Queue, **options) -> list[str]:
    """Send messages until each partition has one; return their ids."""
    return [orders.send({"number": number}, **options) for number in range(4)]


def bury_all(orders: reliq.Queue) -> None:
    with orders.consumer() as consumer:
        while messages := consumer.claim(limit=10):
            for message in messages:
                consumer.dead(message, "no such order")


def test_the_overview_has_the_queue_once_and_its_page_the_sum_and_a_row_for_each(orders, client):
    orders.send_many(["body"] * 400)
    overview = eventually(lambda: "orders no consumers 400 0 0 0" in (text := text_of(client.get("/"))) and text)
    assert "@partition" not in overview
    shown = text_of(client.get("/queues/orders"))
    assert "Ready 400" in shown
    for name in NAMES:
        assert f"{name} 100 0 0 0 0 open" in shown


def test_a_queue_with_one_partition_has_no_table_of_them(app, client):
    app.queue("plain").send("body")
    assert "Partitions" not in text_of(client.get("/queues/plain"))


def test_lists_on_the_dashboard_have_the_messages_of_all_partitions(app, orders, client):
    delayed = one_in_each(orders)
    with orders.consumer() as consumer:
        for _ in range(4):
            for message in consumer.claim(limit=10):
                consumer.retry(message, 3600, "broken")
    held = one_in_each(orders)
    with orders.consumer() as consumer:
        messages: list[reliq.Message] = []
        while len(messages) < 4:
            messages += consumer.claim(limit=4)
        ready = one_in_each(orders)
        assert [app.store.run(stats_of(QueueKeys(name))).ready for name in NAMES] == [1] * 4
        shown = client.get("/queues/orders").text
        for identity in (*delayed, *held, *ready):
            assert f"message?id={identity}" in shown
        assert len(set(re.findall(r"c[0-9a-f]{20}", shown))) == 1  # it holds messages of each partition
        for identity in (*delayed, *held, *ready):
            answer = client.get(f"/queues/orders/message?id={identity}")
            assert answer.status_code == 200
            assert "number" in answer.text
            assert client.get(f"/find?id={identity}").status_code == 303


def test_dead_letters_of_all_partitions_are_listed_shown_edited_and_redriven(orders, client):
    ids = one_in_each(orders)
    bury_all(orders)
    shown = client.get("/queues/orders/dead")
    assert all(identity in shown.text for identity in ids)
    assert "rejected 4" in text_of(shown)
    for identity in ids:
        assert "no such order" in client.get(f"/queues/orders/dead/letter?id={identity}").text
        form = fields_of(client.get(f"/queues/orders/dead/edit?id={identity}").text)
        answer = client.post("/queues/orders/dead/edit", data={**form, "body": '{"edited": 1}', "headers": ""})
        assert "The edited message is back" in client.get(answer.headers["location"]).text
    stats = orders.stats()
    assert (stats.ready, stats.dead, stats.counters["redriven"]) == (4, 0, 4)
    with orders.consumer() as consumer:
        taken = []
        while messages := consumer.claim(limit=10):
            taken += messages
            consumer.ack(*messages)
    assert {message.body for message in taken} == {b'{"edited": 1}'}


def test_the_pages_of_dead_letters_go_over_all_partitions(orders, client):
    ids = set(orders.send_many(["body"] * 120))
    bury_all(orders)
    address, seen = "/queues/orders/dead", set()
    while address:
        text = client.get(address).text
        seen |= {one for one in ids if one in text}
        following = re.search(r'href="([^"]*after=[^"]*)"', text)
        address = "" if following is None else str(httpx.URL("/queues/orders/dead").join(unescape(following[1])))
    assert seen == ids


def test_the_form_of_the_policy_changes_the_number(app, client):
    app.queue("orders").send("body")
    assert 'name="partitions"' in client.get("/queues/orders/policy").text
    assert client.post("/queues/orders/policy", data={"partitions": "8"}).status_code == 303
    assert app.queue("orders").config().partitions == 8
    assert 'value="8"' in client.get("/queues/orders/policy").text
    client.post("/queues/orders/policy", data={"partitions": ""})
    assert app.queue("orders").config().partitions == 1


def test_a_partition_has_no_page_of_its_own(orders, client):
    for name in NAMES[1:]:
        assert client.get(f"/queues/{name}").status_code == 404
        assert client.post(f"/queues/{name}/pause").status_code == 404
    assert not orders.stats().paused
