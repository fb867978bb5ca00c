"""A budget of tokens: messages take their cost when they start, and handlers say what they have cost."""

import threading
import time

import pytest

import reliq
from reliq.errors import InvalidMessage, InvalidSetting, LeaseLost, ReliqError
from reliq.model.keys import QueueKeys
from tests.support.handlers import bind, settled, working_as
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


def bound(app, kind, actual):
    """Make a handler that charges what a function says of its message; the bodies in the order of their starts."""
    started = []

    def begun(message):
        started.append((message.body.decode(), message.cost))
        return actual(message)

    if kind == "async":

        @app.handler("q")
        async def handle_async(message: reliq.Message) -> None:
            await message.charge(begun(message))
    else:

        @app.handler("q")
        def handle(message: reliq.Message) -> None:
            message.charge(begun(message))

    return started


def lacks(client):
    """How many tokens the bucket of the queue lacks, of one a second."""
    return float(client.hget(KEYS.flow, "full_at")) / 1000 - time.time()


def test_what_handlers_charge_decides_when_the_next_ones_start(app, client, kind):
    queue = app.queue("q")
    queue.configure(rate="60/min", burst=100)
    started = bound(app, kind, lambda message: 95)
    queue.send("a", cost=10)
    with working_as(kind, app):
        eventually(lambda: settled(app))
        assert 60 < lacks(client) <= 95
        queue.send("b", cost=90)  # the bucket has five tokens, and gets one a second
        eventually(lambda: queue.stats().limited_by == "rate")
        assert (started, queue.stats().ready) == ([("a", 10)], 1)
        client.hset(KEYS.flow, "full_at", time.time() * 1000)
        eventually(lambda: settled(app), timeout=30)
    assert started == [("a", 10), ("b", 90)]


def test_what_was_not_spent_is_there_for_others(app, client, kind):
    queue = app.queue("q")
    queue.configure(rate="60/min", burst=100)
    started = bound(app, kind, lambda message: 1)
    queue.send_many([reliq.NewMessage(str(number), cost=90) for number in range(5)])
    with working_as(kind, app):
        eventually(lambda: settled(app), timeout=60)
    assert len(started) == 5
    assert lacks(client) < 10


def test_a_retry_and_a_redrive_keep_the_cost(app, client):
    queue = app.queue("q")
    queue.configure(rate="60/min", burst=100)
    queue.send("a", cost=7)
    with queue.consumer() as consumer:
        (message,) = consumer.claim(1)
        consumer.retry(message)
        (message,) = eventually(lambda: consumer.claim(1))
        consumer.dead(message, "it is wrong")
    (letter,) = queue.dead.list()
    assert letter.cost == 7
    queue.dead.redrive()
    with queue.consumer() as consumer:
        (message,) = consumer.claim(1)
        assert message.cost == 7
        consumer.ack(message)
    assert 14 < lacks(client) <= 21


def test_a_message_without_a_cost_takes_one_token_and_sets_no_flag(app, client):
    queue = app.queue("q")
    queue.send("a")
    queue.send("b", key="k")
    assert client.hget(KEYS.config, "weighted") is None
    with queue.consumer() as consumer:
        assert [message.cost for message in consumer.claim(5)] == [1, 1]


@pytest.mark.parametrize("wrong", [-1, 1.5, "many", "5", True, 10**10])
def test_a_wrong_cost_is_refused(app, wrong):
    with pytest.raises(InvalidMessage, match="cost is"):
        app.queue("q").send("x", cost=wrong)
    app.queue("q").send("x")
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim(1)
        with pytest.raises(InvalidSetting, match="actual is"):
            message.charge(wrong)
        consumer.ack(message)


def test_only_a_message_that_was_claimed_is_charged(app):
    queue = app.queue("q")
    queue.send("x", delay=60, cost=3)
    (delayed,) = queue.delayed.list()
    assert delayed.cost == 3
    with pytest.raises(ReliqError, match="not in processing here"):
        delayed.charge(5)


def test_a_run_that_has_ended_is_not_charged(app, client, kind):
    queue = app.queue("q")
    queue.configure(rate="60/min", burst=100)
    kept, answered = [], []

    def handle(message):
        kept.append(message)

    bind(app, kind, handle)
    queue.send("a", cost=2)
    queue.send("b" * 5000, cost=2)
    with working_as(kind, app):
        eventually(lambda: len(kept) == 2 and settled(app))
        for message in kept:
            with pytest.raises(LeaseLost, match="handler has ended"):
                answered.append(message.charge(90))
    queue.send("c")
    with queue.consumer() as consumer:
        (message,) = consumer.claim(1)
        assert message.charge(5) is message.progress(0.5) is message.emit("x") is None
        consumer.ack(message)
        with pytest.raises(LeaseLost, match="handler has ended"):
            message.charge(90)
    assert not answered
    assert lacks(client) <= 9


@pytest.mark.parametrize("how", ["time limit", "lost lease"])
def test_a_run_that_goes_on_without_its_message_is_charged_until_it_ends(app, client, how):
    queue = app.queue("q")
    queue.configure(rate="60/min", burst=100)
    kept, gate, charged = [], threading.Event(), threading.Event()

    @app.handler("q", time_limit=0.2 if how == "time limit" else None, retry=reliq.fixed("1h"))
    def handle(message):
        kept.append(message)
        if how == "lost lease":
            client.delete(*client.keys(KEYS.lease("*")))
        eventually(lambda: message.lost, timeout=30)
        message.charge(50)
        charged.set()
        assert gate.wait(30)

    queue.send("a", cost=1)
    with working(app, threads=2, lease=1.0):
        assert charged.wait(30)
        assert 30 < lacks(client) <= 50
        (message,) = kept[:1]
        gate.set()

        def refused():
            try:
                message.charge(50)
            except LeaseLost:
                return True
            return False

        eventually(refused)


def test_delays_partitions_and_topics_keep_the_cost(app, client):
    queue = app.queue("q")
    queue.configure(partitions=2)
    for number in range(4):
        queue.send(str(number), cost=9, key=f"k{number}")
    app.subscribe("q", "orders.*")
    app.publish("orders.paid", "published", cost=9)
    with queue.consumer() as consumer:
        claimed = [message for _ in range(5) for message in consumer.claim(1)]
        assert [message.cost for message in claimed] == [9] * 5
        consumer.ack(*claimed)
