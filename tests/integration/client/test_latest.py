"""Latest wins, as producers and consumers see it; every test runs for the sync and for the asyncio face."""

import datetime as dt

import pytest

from reliq import InvalidMessage, NewMessage, QueueFull
from reliq.ops import server_time
from reliq.protocol.stats import read_queues
from reliq.transport.store import Store
from tests.support.turns import Monitor
from tests.support.workers import eventually


def send(queue, *bodies, **options):
    return [queue.send(body, dedup_key="customer-7", replace=True, **options) for body in bodies]


def claimed(queue):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.ack(*messages)
        return [message.body for message in messages]


def test_the_body_of_the_one_that_waits_is_replaced(queue):
    ids = send(queue, "1", "2", "3")
    assert len(set(ids)) == 3
    with queue.consumer() as consumer:
        (message,) = consumer.claim(limit=100)
        assert (message.id, message.body) == (ids[-1], b"3")
        consumer.ack(message)
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.counters["replaced"], stats.counters["acked"]) == (0, 0, 2, 1)


def test_others_are_neither_replaced_nor_held_up(queue):
    send(queue, "1")
    queue.send("x")
    queue.send("other", dedup_key="customer-8", replace=True)
    queue.send("plain", dedup_key="customer-7")
    send(queue, "2")
    assert sorted(claimed(queue)) == [b"2", b"other", b"plain", b"x"]


def test_large_bodies_headers_priority_and_ttl_are_those_of_the_newest(queue):
    send(queue, "1" * 5000, headers={"n": "1"})
    send(queue, "2" * 6000, headers={"n": "2"}, ttl="1h", priority="high")
    with queue.consumer() as consumer:
        (message,) = consumer.claim(limit=10)
        assert (message.body, message.headers, message.priority) == (b"2" * 6000, {"n": "2"}, "high")
        assert message.expires_at > 0


def test_an_expired_message_gives_way_to_the_newest(queue, client):
    send(queue, "1", ttl=0.001)
    send(queue, "2")
    sent = client.time()
    eventually(lambda: client.time() > (sent[0], sent[1] + 2000) or client.time()[0] > sent[0])
    assert claimed(queue) + claimed(queue) == [b"2"]
    assert [letter.reason for letter in queue.dead.list()] == ["expired"]


def test_while_a_consumer_has_one_the_newest_waits_for_it(queue):
    send(queue, "1")
    with queue.consumer() as first, queue.consumer() as second:
        (message,) = first.claim()
        send(queue, "2", "3")
        assert second.claim(limit=10) == []
        first.ack(message)
        assert [one.body for one in second.claim(limit=10)] == [b"3"]


def test_a_consumer_that_waits_takes_the_newest_too(queue):
    send(queue, "1", "2")
    with queue.consumer() as consumer:
        assert [message.body for message in consumer.claim(limit=10, wait=1)] == [b"2"]


def test_send_many_takes_messages_that_replace_each_other(queue):
    queue.send_many([NewMessage(str(number), dedup_key="k", replace=True) for number in range(1500)])
    assert claimed(queue) == [b"1499"]


def test_a_debounced_message_is_listed_with_its_due_time_and_can_be_cancelled(queue):
    first, second = send(queue, "1", "2", debounce="1h", at_most="2h")
    (listed,) = queue.delayed.list()
    assert (listed.id, listed.body) == (second, b"2")
    assert not queue.cancel(first)
    assert queue.cancel(second)
    assert queue.stats().delayed == 0


def test_a_duration_may_be_a_timedelta(queue):
    send(queue, "1", debounce=dt.timedelta(minutes=5), at_most=dt.timedelta(hours=1))
    assert queue.stats().delayed == 1


def test_a_full_queue_takes_what_replaces_one_that_waits(queue):
    queue.configure(max_length=1)
    send(queue, "1", debounce="1h")
    send(queue, "2", debounce="1h")
    with pytest.raises(QueueFull):
        queue.send("x")
    with pytest.raises(QueueFull):
        queue.send("y", dedup_key="another", replace=True, debounce="1h")
    assert queue.stats().delayed == 1


def test_the_audit_counts_replaced_messages_as_gone(queue, url):
    send(queue, "1", "2", "3")
    send(queue, "4", debounce="1h")
    store = Store(url)
    (snapshot,) = store.run(read_queues(["q"]))
    store.close()
    assert snapshot.missing == 0


WRONG = [
    ({"replace": True}, "replace without a dedup_key"),
    ({"replace": "yes", "dedup_key": "k"}, "replace is 'yes': it must be true or false"),
    ({"replace": True, "dedup_key": ""}, "dedup_key is ''"),
    ({"replace": True, "dedup_key": "k", "key": "o"}, "replace and key 'o' are given"),
    ({"replace": True, "dedup_key": "k", "limit_key": "t"}, "replace and limit_key 't' are given"),
    ({"replace": True, "dedup_key": "k", "delay": 5}, "replace and delay 5 s are given: use debounce to"),
    ({"debounce": "5s", "dedup_key": "k"}, "debounce is '5s' without replace: it delays"),
    ({"at_most": "5s", "dedup_key": "k"}, "at_most is '5s' without replace: it delays"),
    ({"replace": True, "dedup_key": "k", "at_most": "5s"}, "at_most is '5s' without debounce"),
    ({"replace": True, "dedup_key": "k", "debounce": 0}, "debounce is 0: it must be between 1 ms and"),
    ({"replace": True, "dedup_key": "k", "debounce": -1}, "debounce is -1: it must be between"),
    ({"replace": True, "dedup_key": "k", "debounce": "400d"}, "debounce is '400d': it must be between"),
    ({"replace": True, "dedup_key": "k", "debounce": "soon"}, "debounce is 'soon': write seconds"),
    ({"replace": True, "dedup_key": "k", "debounce": "5s", "at_most": 0}, "at_most is 0: it must be between"),
    ({"replace": True, "dedup_key": "k", "debounce": "5s", "at_most": "4s"}, "at_most is '4s', shorter than debounce"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
def test_wrong_options_are_refused_by_name_and_value_and_nothing_is_enqueued(queue, client, options, text):
    with pytest.raises(InvalidMessage, match=text):
        queue.send("x", **options)
    assert client.keys("*") == []


def test_a_prepared_or_published_message_cannot_replace_another_one(face, queue, client):
    with pytest.raises(InvalidMessage, match="a prepared message cannot replace another one"):
        queue.prepare("x", dedup_key="k", replace=True)
    with pytest.raises(InvalidMessage, match="publish takes no dedup_key"):
        face().publish("a.b", NewMessage("x", dedup_key="k", replace=True))
    assert client.keys("*{q}*") == []


def die(queue, *bodies):
    """Send these messages, each of which becomes a dead letter before the next one is sent."""
    ids = []
    for body in bodies:
        ids += send(queue, body)
        with queue.consumer() as consumer:
            (message,) = consumer.claim()
            consumer.dead(message, "the service is down")
    return ids


@pytest.mark.parametrize("how", ["all", "oldest first", "newest first", "slowly"])
def test_of_several_dead_letters_the_newest_runs(queue, how):
    ids = die(queue, "1", "2", "3")
    match how:
        case "all":
            queue.dead.redrive()
        case "slowly":
            queue.dead.redrive(rate=100)
        case _:
            for identity in ids if how == "oldest first" else ids[::-1]:
                queue.dead.redrive(ids=[identity])
    assert claimed(queue) + claimed(queue) == [b"3"]
    assert queue.stats().counters["replaced"] == 2


def test_a_redrive_replaces_no_newer_message_that_waits(queue):
    older, newer = die(queue, "1", "2")
    queue.dead.redrive(ids=[older])
    send(queue, "3")
    assert queue.dead.redrive(ids=[newer]).redriven == 0
    assert claimed(queue) == [b"3"]


@pytest.mark.parametrize("handled", [False, True], ids=["waits", "was handled"])
def test_a_debounced_message_that_no_monitor_has_made_ready_does_not_come_after_a_newer_one(queue, store, handled):
    send(queue, "1", debounce=0.05)
    eventually(lambda: queue.delayed.list()[0].due_at <= store.call(server_time()))
    send(queue, "2")
    ran = claimed(queue) if handled else []
    Monitor(store).promote()
    assert [*ran, *claimed(queue)] == [b"2"]
