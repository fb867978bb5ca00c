"""reliq.testing: applications tested without a server."""

import pytest

import reliq
from reliq.testing import fake, work_off


@pytest.fixture
def shop() -> reliq.Reliq:
    return fake(reliq.Reliq())


def test_a_handler_runs_and_its_message_is_gone(shop):
    handled = []
    shop.handler("orders")(lambda message: handled.append(message.json()))
    shop.queue("orders").send_many([{"order": 1}, {"order": 2}])
    assert work_off(shop) == 2
    assert handled == [{"order": 1}, {"order": 2}]
    stats = shop.queue("orders").stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 2)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_that_runs_once_does_so_here_too(shop, kind):
    handled = []

    def ship(message):
        handled.append(message.id)

    async def ship_async(message):
        ship(message)

    shop.handler("orders", once=True)(ship if kind == "def" else ship_async)
    for _ in range(2):
        shop.queue("orders").send("x", id="mine")
        assert work_off(shop) == 1
    assert handled == ["mine"]
    assert shop.queue("orders").stats().counters["acked"] == 2


def test_the_latest_wins_and_a_debounced_message_stays_delayed(shop):
    handled = []
    shop.handler("orders")(lambda message: handled.append(message.body))
    for number in range(3):
        shop.queue("orders").send(str(number), dedup_key="k", replace=True)
        shop.queue("orders").send(str(number), dedup_key="other", replace=True, debounce="1m", at_most="1h")
    assert work_off(shop) == 1
    assert handled == [b"2"]
    stats = shop.queue("orders").stats()
    assert (stats.delayed, stats.counters["replaced"]) == (1, 4)


def test_a_failing_handler_ends_in_the_dead_letters(shop):
    @shop.handler("orders", retry=reliq.fixed(0, limit=2))
    def explode(message):
        raise KeyError("boom")

    shop.queue("orders").send("x")
    assert work_off(shop) == 3
    (letter,) = shop.queue("orders").dead.list()
    assert (letter.reason, letter.failures, letter.last_error.error_class) == ("max_failures", 3, "KeyError")


def test_large_bodies_are_listed_and_counted(shop):
    orders = shop.queue("orders")
    orders.send_many(["x" * 1024 * 1024, "y" * 1024 * 1024])
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "no")
    assert (orders.stats().ready, orders.stats().dead) == (1, 1)
    assert [letter.size for letter in orders.dead.list(bodies=False)] == [1024 * 1024]
    assert [letter.body for letter in orders.dead.list(reason="rejected")] == [message.body]


def test_async_handlers_and_delays_work_too(shop):
    handled = []

    @shop.handler("mails")
    async def mail(message):
        handled.append(message.body)

    shop.queue("mails").send("now")
    shop.queue("mails").send("later", delay="1h")
    assert work_off(shop) == 1
    assert handled == [b"now"]
    assert shop.queue("mails").stats().delayed == 1
