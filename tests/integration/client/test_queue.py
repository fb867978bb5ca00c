"""Queues as producers and operators use them; every test runs for the sync and for the asyncio face."""

import datetime as dt
import math
import os
import subprocess
import sys
import time
import uuid
from collections import Counter

import pytest

from reliq import InvalidMessage, InvalidName, InvalidSetting, NewMessage, QueueFull
from reliq.contract.keywords import Config
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import command
from reliq.transport.store import Store
from tests.support.turns import Monitor
from tests.support.workers import ROOT, eventually


def bodies(queue):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=100)
        consumer.release(*messages)
        return [message.body for message in messages]


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ("grüße", "grüße".encode()),
        ({"order": 1, "to": "ü"}, '{"order":1,"to":"ü"}'.encode()),
        ([1, 2.5, None, True], b"[1,2.5,null,true]"),
        ((1,), b"[1]"),
        (None, b"null"),
        (7, b"7"),
        (b"", b""),
        ("", b""),
    ],
)
def test_a_body_is_bytes_text_or_json(queue, body, sent):
    queue.send(body)
    assert bodies(queue) == [sent]


@pytest.mark.parametrize(
    "body",
    [object(), {1, 2}, {"x": object()}, math.nan, math.inf, {"x": math.nan}, dt.date(2026, 1, 1), "\ud800", 1j],
)
def test_what_is_neither_is_refused(queue, body):
    with pytest.raises(InvalidMessage, match="neither bytes, text nor JSON"):
        queue.send(body)
    assert queue.stats().ready == 0


def test_a_body_that_contains_itself_is_refused(queue):
    loop: list = []
    loop.append(loop)
    with pytest.raises(InvalidMessage):
        queue.send(loop)


def test_a_body_has_a_largest_size_that_can_be_set(face):
    queue = face().queue("q")
    queue.send(b"x" * 1024 * 1024)
    with pytest.raises(InvalidMessage, match=r"the body has 1,048,577 bytes, the limit is 1,048,576 \(max_body\)"):
        queue.send(b"x" * (1024 * 1024 + 1))
    with pytest.raises(InvalidMessage, match="message 1 of the call: the body has 11 bytes, the limit is 10"):
        face(max_body=10).queue("q").send_many(["x", "x" * 11])
    assert queue.stats().ready == 1


def test_the_largest_body_arrives_as_it_was_sent(face):
    queue, body = face(max_body="64MiB").queue("q"), os.urandom(1024) * 64 * 1024
    queue.send(body)
    with face(max_body=1).queue("q").consumer() as consumer:  # a consumer has no limit
        (message,) = consumer.claim()
        assert message.body == body


def test_a_call_with_more_bytes_than_redis_takes_at_once_is_sent_in_parts(face):
    queue = face(max_body="12 MiB").queue("q")
    ids = queue.send_many([bytes([number]) * 12 * 1024 * 1024 for number in range(4)])
    with queue.consumer() as consumer:
        found = [one for _ in range(4) for one in consumer.claim(limit=4)]  # a claim ends at a few megabytes
        assert [(one.id, one.body[0]) for one in found] == list(zip(ids, range(4), strict=True))


def test_an_id_is_a_uuid_of_version_7_unless_given(queue):
    identity = uuid.UUID(queue.send("x"))
    assert identity.version == 7
    assert abs((identity.int >> 80) - time.time() * 1000) < 5000
    assert queue.send("x", id="order-7") == "order-7"


@pytest.mark.parametrize("identity", ["", "a b", "ü", "x" * 129, "a\n", 7])
def test_a_bad_id_is_refused(queue, identity):
    with pytest.raises(InvalidName, match="message id"):
        queue.send("x", id=identity)


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "soon", "-5s", 367 * 86400, "400d", [1], True])
def test_a_bad_delay_is_refused(queue, delay):
    with pytest.raises(InvalidMessage, match="delay"):
        queue.send("x", delay=delay)
    assert queue.stats().delayed == 0


@pytest.mark.parametrize("delay", [0.5, 60, "90s", "1.5h", "250ms", "10", dt.timedelta(minutes=3)])
def test_delays_can_be_written_in_many_ways(queue, delay):
    queue.send("x", delay=delay)
    assert (queue.stats().ready, queue.stats().delayed) == (0, 1)


@pytest.mark.parametrize(
    "headers", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}, [("a",)], 3, {"a": "x" * 20_000}]
)
def test_bad_headers_are_refused(queue, headers):
    with pytest.raises(InvalidMessage, match="headers"):
        queue.send("x", headers=headers)


@pytest.mark.parametrize(
    "name", ["", "}x", "a b", "orders}:processing:{x", "a\n", "ü", ".a", "-a", "a" * 129, "a/b", "a*", None, 7]
)
def test_a_queue_name_outside_the_grammar_never_becomes_a_key(face, name):
    app = face()
    with pytest.raises(InvalidName, match="queue name"):
        app.queue(name)
    assert app.queues() == []


def test_queues_lists_every_queue_that_was_used(face):
    app = face()
    for name in ("b", "a@x", "A.1_2-3"):
        app.queue(name).send("x")
    assert app.queues() == ["A.1_2-3", "a@x", "b"]


def test_a_foreign_entry_among_the_queues_stops_nobody(face, url):
    store = Store(url)
    store.call(command("SADD", "reliq:queues", "}no name", b"\xff"))
    app = face()
    app.queue("q").send("x", delay="1ms")
    eventually(lambda: Monitor(store).promote()[0] == 1)
    assert app.queues() == ["q"]
    store.close()


def test_send_many_keeps_the_order_and_answers_the_ids(queue):
    ids = queue.send_many(range(2500))
    assert len(set(ids)) == 2500
    with queue.consumer() as consumer:
        assert [message.id for message in consumer.claim(limit=1000)] == ids[:1000]


def test_send_many_with_one_bad_item_enqueues_nothing_and_names_it(queue):
    for bad in ({"x": math.nan}, b"x" * 1_200_000):
        with pytest.raises(InvalidMessage, match=r"message 2 of the call.*nothing was enqueued") as caught:
            queue.send_many(["a", "b", bad, "d"])
        assert caught.value.index == 2
    with pytest.raises(InvalidMessage, match="not one str"):
        queue.send_many("abc")
    assert queue.stats().ready == 0


def test_send_many_of_nothing_is_nothing(queue):
    assert queue.send_many([]) == []


def test_messages_with_options_of_their_own(queue):
    messages = [NewMessage("a", id="first"), NewMessage("b", delay=60, headers={"x": "y"}), "c"]
    ids = queue.send_many(messages)
    assert ids[0] == "first"
    assert bodies(queue) == [b"a", b"c"]
    assert queue.stats().delayed == 1


def test_a_deduplication_key_answers_the_first_id_within_its_window(queue):
    first = queue.send("a", dedup_key="order 1")
    assert queue.send("b", dedup_key="order 1") == first
    assert queue.send("c", dedup_key="order 2") != first
    ids = queue.send_many([NewMessage("d", dedup_key="order 1"), NewMessage("e"), NewMessage("f", dedup_key="k")])
    assert ids[0] == first
    assert bodies(queue) == [b"a", b"c", b"e", b"f"]
    assert queue.stats().counters["deduplicated"] == 2
    with pytest.raises(InvalidMessage, match="dedup_key"):
        queue.send("x", dedup_key="")


def test_stats_say_what_is_where(queue):
    queue.send_many(["a", "b", "c"])
    queue.send("d", delay=60)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "no")
        consumer.claim()
        stats = queue.stats()
    assert (stats.queue, stats.ready, stats.processing, stats.delayed, stats.dead) == ("q", 1, 1, 1, 1)
    assert 0 <= stats.oldest_ready_age < 10
    assert (stats.consumers, stats.paused, stats.counters["enqueued"]) == (1, False, 4)


def test_the_age_of_the_oldest_is_that_of_one_that_is_not_cancelled(queue):
    cancelled = queue.send_many(["a", "b", "c"])
    queue.send("d")
    for identity in cancelled:
        queue.cancel(identity)
    eventually(lambda: queue.stats().oldest_ready_age > 0)
    assert queue.stats().ready == 1


def test_stats_of_a_queue_that_never_was(queue):
    stats = queue.stats()
    assert (stats.ready, stats.oldest_ready_age, stats.counters) == (0, 0.0, {})


def test_the_policy_lives_in_redis(face):
    queue = face().queue("q")
    assert queue.config() == Config()
    queue.configure(max_length=2, max_deliveries=9, dead_max_age="7d", dead_max_count=1000)
    other = face().queue("q")
    assert other.config() == Config(max_length=2, max_deliveries=9, dead_max_age=7 * 86400.0, dead_max_count=1000)
    other.configure(max_length=None)
    assert queue.config().max_length is None


@pytest.mark.parametrize("change", [{"max_length": 0}, {"max_length": 1.5}, {"max_deliveries": "x"}, {"colour": "red"}])
def test_a_policy_that_makes_no_sense_is_refused(queue, change):
    with pytest.raises(InvalidSetting):
        queue.configure(**change)


def test_a_full_queue_refuses_with_a_sentence(queue):
    queue.configure(max_length=2)
    queue.send_many(["a", "b"])
    with pytest.raises(QueueFull, match="holds 2 of at most 2 messages; none of the 1 was enqueued"):
        queue.send("c")
    assert queue.stats().ready == 2


def test_a_paused_queue_takes_sends_and_gives_nothing(queue):
    queue.pause()
    queue.send("x")
    with queue.consumer() as consumer:
        assert consumer.claim(wait=0.2) == []
        assert queue.stats().paused
        queue.resume()
        assert len(consumer.claim()) == 1


def test_cancel_is_true_once_for_what_is_delayed_or_ready(queue):
    identity = queue.send("x", delay=60)
    ready = queue.send("y")
    assert [bool(queue.cancel(one)) for one in (identity, identity, ready)] == [True, False, True]
    assert queue.stats().ready == 0


def test_purge_removes_ready_and_delayed_only(queue):
    queue.send_many(range(1500))
    queue.send("later", delay=60)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert queue.purge() == 1500
        consumer.ack(message)
    assert queue.stats().counters["purged"] == 1500


def test_a_message_shows_what_it_is(queue):
    identity = queue.send({"order": 1}, headers={"shop": "eu"}, id="order-1")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert (message.id, message.json(), message.headers, message.queue) == (
            identity,
            {"order": 1},
            {"shop": "eu"},
            "q",
        )
        assert (message.deliveries, message.failures, message.redelivered) == (0, 0, False)
        assert abs(message.enqueued_at - time.time() * 1000) < 5000
    queue.send("no json")
    with queue.consumer() as consumer:
        message = consumer.claim(limit=2)[-1]
        with pytest.raises(InvalidMessage, match=r"is not JSON: .*; a text is sent as it is, and message\.body "):
            message.json()


FORKING = """
import os, sys, reliq
app = reliq.Reliq(sys.argv[1])
queue = app.queue("q")
queue.send_many(["before", "before"])
child = os.fork()
for _ in range(20):
    queue.send("child" if child == 0 else "parent")
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_process_is_another_producer(url):
    """With the sequence of its parent, either would take the other's sends for repeats of its own."""
    subprocess.run([sys.executable, "-c", FORKING, url], check=True, cwd=ROOT, timeout=60)
    store = Store(url)
    assert store.call(command("HLEN", QueueKeys("q").producers)) == 2
    elements = store.call(command("LRANGE", QueueKeys("q").messages, 0, -1))
    store.close()
    found = Counter(Message.decode("q", one).body for one in elements)
    assert found == {b"before": 2, b"child": 20, b"parent": 20}


def test_a_send_many_that_fails_half_way_says_what_was_enqueued(queue):
    queue.configure(max_length=2500)
    with pytest.raises(QueueFull, match="the first 2000 of the 7000 messages of the call were enqueued") as error:
        queue.send_many(range(7000))
    assert len(error.value.sent) == queue.stats().ready == 2000
    with pytest.raises(QueueFull) as error:
        queue.send_many(range(700))
    assert error.value.sent == ()


@pytest.mark.parametrize("bodies", [None, 5, "text", b"bytes", {"a": 1}])
def test_send_many_takes_a_list(queue, bodies):
    with pytest.raises(InvalidMessage, match="takes a list of bodies"):
        queue.send_many(bodies)


def test_an_application_is_a_context_that_closes_its_connections(face):
    with face() as app:
        app.queue("q").send(1)
        pool = getattr(app, "inner", app).store._idle
        assert len(pool) == 1

    assert len(pool) == 0
