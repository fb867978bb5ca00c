"""The node of the names of all queues is away: the queues of the other nodes are used as before."""

import contextlib
import os
import signal
import time

import pytest

from reliq.contract import values
from reliq.errors import RedisUnavailable
from reliq.features.topics import steps
from reliq.model.keys import QUEUES
from tests.support.workers import eventually

NEW = [f"new{number}" for number in range(9)]


@pytest.fixture
def app(face, emptied):
    return face(emptied.url, send_timeout=1)


@pytest.fixture
def there(cluster):
    """A queue on another node than the names."""
    return next(name for name in NEW if cluster.master_of(name) is not cluster.master_of(QUEUES))


@contextlib.contextmanager
def names_away(cluster):
    keeper = cluster.master_of(QUEUES)
    keeper.kill()
    try:
        yield
    finally:
        keeper.start()
        eventually(cluster.whole, timeout=60)


def forget_announcement(queue):
    """Do what a minute does: the next send announces the queue again."""
    queue._steps.homes.first._announced_at -= 61


def names(app):
    return [one for one in app.queues() if one in NEW]


def test_a_queue_that_was_announced_takes_messages(app, cluster, there):
    queue = app.queue(there)
    queue.send("before")
    forget_announcement(queue)
    with names_away(cluster):
        queue.send("plain")
        queue.send_many(["x" * 5000] * 3)
        queue.send("later", delay=60)
        queue.prepare("prepared").commit()
        queue.cycle.add("member")
        assert (queue.stats().ready, queue.stats().delayed) == (7, 1)


def test_a_new_queue_takes_messages_and_the_next_send_announces_it(app, cluster, there):
    queue = app.queue(there)
    with names_away(cluster):
        queue.send("first")
        queue.send("second")
        assert queue.stats().ready == 2
        with pytest.raises(RedisUnavailable):
            app.queues()
    assert names(app) == []
    queue.send("third")
    assert names(app) == [there]


def test_a_queue_whose_own_node_is_away_takes_none(app, cluster):
    beside = next(name for name in NEW if cluster.master_of(name) is cluster.master_of(QUEUES))
    with names_away(cluster), pytest.raises(RedisUnavailable):
        app.queue(beside).send("body")


def test_a_queue_is_paused_and_configured_while_the_node_of_the_names_is_away(app, cluster, there):
    queue = app.queue(there)
    with names_away(cluster):
        queue.pause()
        queue.configure(max_length=5)
        queue.open_breaker(60)
        assert (queue.config().paused, queue.config().max_length, queue.stats().breaker) == (True, 5, "open")
        queue.resume()
        assert queue.close_breaker()


def test_a_message_is_published_by_bindings_that_are_known(app, cluster, there, monkeypatch):
    monkeypatch.setattr(steps, "_FRESH", 60.0)
    app.subscribe(there, "order.*")
    app.publish("order.created", "before")
    forget_announcement(app.queue(there))
    with names_away(cluster):
        app.publish("order.created", "small")
        app.publish("order.created", "x" * 5000)
        assert app.queue(there).stats().ready == 3


def test_a_consumer_takes_messages_and_announces_its_queue_later(app, cluster, there):
    with contextlib.ExitStack() as stack:
        with names_away(cluster):
            app.queue(there).send("body")
            consumer = stack.enter_context(app.queue(there).consumer(lease=1))
            (message,) = consumer.claim()
            consumer.ack(message)
        eventually(lambda: consumer.claim() == [] and names(app) == [there])


def test_a_node_that_hangs_delays_one_send_and_not_each(app, cluster, there, monkeypatch):
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    queue, keeper = app.queue(there), cluster.master_of(QUEUES)
    queue.send("before")
    forget_announcement(queue)
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        queue.send("waits for the node")
        took = []
        for _ in range(10):
            began = time.monotonic()
            queue.send("body")
            took.append(time.monotonic() - began)
        assert sorted(took)[5] < 0.5
    finally:
        os.kill(keeper.pid, signal.SIGCONT)
        eventually(cluster.whole, timeout=60)
    assert queue.stats().ready == 12
