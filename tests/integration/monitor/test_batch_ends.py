"""The end of a batch, where monitors are slow, die, or do the same at once."""

import contextlib

import pytest

import reliq
from reliq.features.batches import duty
from reliq.features.batches.duty import LateCounts
from reliq.features.batches.steps import end
from reliq.model.keys import QueueKeys
from tests.support.turns import Monitor


@pytest.fixture
def monitor(store):
    return Monitor(store)


def handle_all(app, queue):
    with app.queue(queue).consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.ack(*messages)
    return [(message.body.decode(), message.headers.get("batch-handled")) for message in messages]


def go_on(store, steps, answer=None, requests=100):
    """Do so many of the requests of a monitor, or all that are left; return the answer of the last one."""
    with contextlib.suppress(StopIteration):
        for _ in range(requests):
            answer = store.call(steps.send(answer))
    return answer


@pytest.mark.parametrize("requests", range(1, 9))
def test_two_monitors_end_an_inner_batch_once(app, store, monitor, requests):
    """One of them is slow: the other one ends the batch after any of its requests."""
    with app.batch(on_done=("reports", "outer")) as outer:
        with outer.batch(on_done=("reports", "first")) as first:
            first.send("orders", 1)
        with outer.batch() as second:
            second.send("mails", 1)
    handle_all(app, "orders")
    slow = end(first.id)
    answer = go_on(store, slow, requests=requests)
    monitor.end_batches()
    go_on(store, slow, answer)
    monitor.end_batches()
    progress = outer.progress()
    assert (progress.batches, progress.state) == (1, "closed")
    handle_all(app, "mails")
    assert monitor.end_batches() + monitor.end_batches() == 2
    assert handle_all(app, "reports") == [("first", "1"), ("outer", "2")]


def sent_end(app, store):
    """A monitor that has sent the message at the end of a batch, and noted nothing yet: its steps, and their answer."""
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send("orders", 1)
    handle_all(app, "orders")
    steps, answer = end(batch.id), None
    while not app.queue("reports").stats().counters.get("enqueued"):
        answer = go_on(store, steps, answer, requests=1)
    return steps, answer


def test_a_batch_whose_end_takes_hours_sends_one_message(app, store, monitor, client):
    steps, answer = sent_end(app, store)
    go_on(store, steps, answer, requests=1)
    steps.close()  # the queue of its counts is away
    client.delete(QueueKeys("reports").producers)  # as a monitor does after an hour
    assert monitor.end_batches() == 1
    assert handle_all(app, "reports") == [("done", "1")]


def test_a_monitor_that_died_between_the_message_and_its_note_hours_ago_has_sent_it(app, store, monitor, client):
    steps, _ = sent_end(app, store)
    steps.close()
    producers = QueueKeys("reports").producers
    client.hset(producers, mapping=dict.fromkeys([*client.hkeys(producers), "another"], "1 1"))
    monitor.tidy()  # by another one than that which leads the batches
    assert monitor.end_batches() == 1
    assert handle_all(app, "reports") == [("done", "1")]
    client.hset(producers, mapping=dict.fromkeys(client.hkeys(producers), "1 1"))
    Monitor(store).tidy()
    assert not client.exists(producers)


def counted(client, queue):
    keys = QueueKeys(queue)
    return {name[1:].decode() for name in client.hkeys(keys.followed)}, int(client.hget(keys.config, "batched") or 0)


def test_the_counts_of_a_message_that_is_sent_after_the_end_of_its_batch_are_deleted(app, monitor, client):
    with app.batch() as batch:
        batch.send("orders", 1)
    with app.batch() as other:
        other.send("orders", 2)
    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim())
        assert monitor.end_batches() == 1
    assert counted(client, "orders") == ({other.id}, 1)
    app.queue("orders").send_many([reliq.NewMessage(n).of_batch(batch.id) for n in (3, 4)])
    assert counted(client, "orders") == ({batch.id, other.id}, 2)
    assert monitor.perform(LateCounts) == 1
    assert counted(client, "orders") == ({other.id}, 1)
    handle_all(app, "orders")
    assert monitor.end_batches() == 1
    assert counted(client, "orders") == (set(), 0)


def test_a_turn_looks_at_a_page_of_the_counts(app, monitor, client, monkeypatch):
    monkeypatch.setattr(duty, "COUNTS", 20)
    app.queue("orders").send_many([reliq.NewMessage(n).of_batch(f"b{n}") for n in range(1000)])
    first = monitor.perform(LateCounts)
    assert 0 < first < 1000
    assert first + sum(monitor.perform(LateCounts) for _ in range(100)) == 1000
    assert counted(client, "orders") == (set(), 0)
