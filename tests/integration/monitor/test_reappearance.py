"""A queue that was deleted by force while a producer sent to it is known again, with what it has."""

from reliq.model.keys import DELETED
from reliq.protocol.deletion import delete
from tests.support.turns import Monitor


def test_what_a_producer_sends_after_a_deletion_is_in_a_queue_that_is_listed(app, client):
    queue = app.queue("q")
    queue.send("x")  # it announces the queue, and does not again for a minute
    app.store.run(delete("q", force=True))
    sent = queue.send("y")
    assert client.smembers("reliq:queues") == set()
    monitor = Monitor(app.store)
    monitor.tidy()
    assert b"q" in client.smembers("reliq:queues")
    assert queue.find(sent).place == "ready"


def test_a_copy_that_comes_after_a_deletion_is_in_a_queue_that_is_listed(app, client):
    for name in ("before", "q"):
        app.subscribe(name, "order.#")
    app.publish("order.created", "x")  # the producer knows the bindings for half a second
    app.store.run(delete("q", force=True))
    assert list(app.publish("order.created", "y")) == ["before", "q"]
    Monitor(app.store).tidy()
    assert b"q" in client.smembers("reliq:queues")
    assert app.queue("q").stats().ready == 1


def test_deleted_queues_are_looked_at_for_two_minutes(app, client):
    app.queue("q").send("x")
    app.store.run(delete("q", force=True))
    monitor = Monitor(app.store)
    monitor.tidy()
    assert client.hkeys(DELETED) == [b"q"]
    client.hincrby(DELETED, "q", -121_000)
    monitor.tidy()
    assert client.keys("*q*") == [b"reliq:queues"] or client.keys("*q*") == []
    assert not client.exists(DELETED)
