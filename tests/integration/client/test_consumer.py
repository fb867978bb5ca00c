"""Claiming and settling by hand; every test runs for the sync and for the asyncio face."""

import threading
import time

import pytest
import redis

import reliq
from reliq import InvalidSetting, LeaseLost
from reliq.model.element import BLANK
from reliq.model.keys import QueueKeys
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")


def lose_lease(store):
    """What time does: the lease runs out, and the monitor takes its message back; not just after a start of Redis."""

    def taken_back():
        for consumer in store.call(reliq.ops.members(KEYS.consumers)):
            store.call(reliq.ops.command("SET", KEYS.lease(consumer), 1))
        return Monitor(store).scan().reclaimed == 1

    eventually(taken_back)


def test_ack_removes_retry_delays_dead_buries_release_returns(queue):
    queue.send_many(["ack", "retry", "dead", "release"])
    with queue.consumer(lease=30) as consumer:
        ack, retry, dead, release = consumer.claim(limit=10)
        consumer.ack(ack)
        consumer.retry(retry, delay=60, error="try later")
        consumer.dead(dead, "no such order")
        consumer.release(release)
        stats = queue.stats()
        assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (1, 0, 1, 1)
        (again,) = consumer.claim()
        assert (again.id, again.failures, again.redelivered) == (release.id, 0, False)
    (letter,) = queue.dead.list()
    assert (letter.reason, letter.last_error.text) == ("rejected", "no such order")


def test_leaving_the_context_gives_back_what_was_not_settled(queue):
    queue.send_many(range(3))
    with queue.consumer() as consumer:
        first, *_ = consumer.claim(limit=3)
        consumer.ack(first)
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.consumers, stats.counters["released"]) == (2, 0, 0, 2)


@pytest.mark.parametrize(("limit", "late"), [(1, 30), (100, 300)])
def test_a_claim_passes_over_expired_messages(queue, client, limit, late):
    """A loop that ends when nothing comes handles all others: without a wait too."""
    queue.send_many([reliq.NewMessage("late", ttl=0.001) for _ in range(late)])
    queue.send_many(range(5))
    time.sleep(0.01)
    with queue.consumer() as consumer:
        handled = []
        while messages := consumer.claim(limit):
            handled += messages
            consumer.ack(*messages)
    assert [message.json() for message in handled] == list(range(5))
    assert queue.stats().counters["dead:expired"] == late


def test_nothing_comes_within_the_wait(queue):
    with queue.consumer() as consumer:
        started = time.monotonic()
        assert consumer.claim(limit=5, wait=0.3) == []
        assert time.monotonic() - started >= 0.29


def test_what_is_sent_while_a_claim_waits_comes_at_once(queue, url):
    app = reliq.Reliq(url)
    with queue.consumer() as consumer:
        timer = threading.Timer(0.2, lambda: app.queue("q").send_many(["a", "b"]))
        timer.start()
        assert consumer.claim(limit=10, wait=20)[0].body == b"a"
        timer.join()
    app.close()


def test_ack_twice_is_fine(queue):
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.ack(message)
        with pytest.warns(RuntimeWarning, match="was settled before"):
            consumer.ack(message)
    assert queue.stats().counters["acked"] == 1


def test_a_lost_lease_is_an_error_and_settles_nothing(queue, store):
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        lose_lease(store)
        for settle in (
            consumer.ack,
            consumer.release,
            consumer.retry,
            lambda one: consumer.dead(one, "x"),
        ):
            with pytest.raises(LeaseLost, match="1 of the 1 messages"):
                settle(message)
        assert (queue.stats().ready, queue.stats().dead) == (1, 0)
        (again,) = consumer.claim()
        assert (again.id, again.redelivered, again.deliveries) == (message.id, True, 1)
        consumer.ack(again)
    assert queue.stats().counters["acked"] == 1


def test_the_lease_is_renewed_while_the_work_takes_long(queue, store):
    queue.send("x")
    with queue.consumer(lease=1) as consumer:
        (message,) = consumer.claim()
        deadline = int(store.call(reliq.ops.command("GET", KEYS.lease(consumer.id))))
        beyond = threading.Event()
        if hasattr(consumer, "inner"):
            import asyncio

            consumer._runner.run(asyncio.sleep(1.5))
        else:
            beyond.wait(1.5)
        assert int(store.call(reliq.ops.command("GET", KEYS.lease(consumer.id)))) > deadline
        assert Monitor(store).scan().reclaimed == 0
        consumer.ack(message)


def test_a_claim_whose_answer_is_lost_is_read_back(face, redis_server, url):
    cut = threading.Event()

    def reply(data):
        if cut.is_set():
            cut.clear()
            return None
        return data

    sender = reliq.Reliq(url)
    with Proxy(redis_server.port, reply=reply) as proxy:
        queue = face(proxy.url).queue("q")
        with queue.consumer() as consumer:
            consumer.claim()
            sender.queue("q").send_many(range(5))
            cut.set()
            messages = consumer.claim(limit=5)
            assert [message.json() for message in messages] == [0, 1, 2, 3, 4]
            consumer.ack(*messages)
            assert consumer.claim(limit=5) == []
    stats = sender.queue("q").stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 5)
    sender.close()


def test_a_lost_consumer_reads_nothing_back_that_is_not_its_own(queue, store):
    queue.send("x")
    with queue.consumer() as consumer:
        consumer.claim()
        first = consumer.id
        lose_lease(store)
        consumer.claim()
        assert consumer.id != first
    eventually(lambda: store.call(reliq.ops.members(KEYS.consumers)) == [])


@pytest.mark.parametrize("lease", [0, 0.5, "13h", -1])
def test_a_lease_outside_its_range_is_refused(queue, lease):
    with pytest.raises(InvalidSetting, match="lease"):
        queue.consumer(lease=lease)


@pytest.mark.parametrize("limit", [0, -1, 1001, 1.5, "x"])
def test_a_limit_outside_its_range_is_refused(queue, limit):
    with queue.consumer() as consumer, pytest.raises(InvalidSetting, match="limit"):
        consumer.claim(limit=limit)


def test_only_messages_can_be_settled(queue):
    with queue.consumer() as consumer, pytest.raises(InvalidSetting, match="cannot settle 'id'"):
        consumer.ack("id")


def test_a_message_is_settled_by_the_consumer_that_holds_it(queue):
    queue.send_many(["a", "b"])
    with queue.consumer() as one, queue.consumer() as other:
        (a,), (b,) = one.claim(), other.claim()
        with pytest.raises(InvalidSetting, match="another consumer holds it"):
            other.ack(a)
        one.ack(a)
        other.ack(b)
    assert queue.stats().counters["acked"] == 2


def test_a_consumer_ends_with_its_context(queue):
    with queue.consumer() as consumer:
        pass
    with pytest.raises(InvalidSetting, match="has ended"):
        consumer.claim()


def test_a_consumer_has_one_context(queue):
    queue.send("x")
    with queue.consumer() as consumer:
        with pytest.raises(InvalidSetting, match="make a new one"):
            consumer.__enter__()
        consumer.claim()
    consumer.__exit__(None, None, None)
    with pytest.raises(InvalidSetting, match="make a new one"), consumer:
        pass
    assert (queue.stats().ready, queue.stats().consumers) == (1, 0)
    eventually(lambda: not any(thread.name.endswith(consumer.id[:6]) for thread in threading.enumerate()))


@pytest.mark.parametrize("policy", [{}, {"concurrency": 1}], ids=["plain", "limited"])
def test_a_claim_of_one_message_passes_over_many_cancelled_ones_with_each_call(queue, client, policy):
    queue.configure(**policy)
    queue.send("behind them")
    client.rpush(KEYS.messages, *[BLANK] * 20_000)
    with queue.consumer() as consumer:
        before = calls(client)
        (message,) = consumer.claim(limit=1, wait=20)
        assert message.body == b"behind them"
        assert calls(client) - before < 200
        consumer.ack(message)


def calls(client) -> int:
    """How many scripts and blocking commands the server has run."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "blmove"))


@pytest.mark.parametrize("policy", [{}, {"concurrency": 5000}, {"history": "1h"}], ids=["plain", "limited", "followed"])
def test_a_thousand_messages_are_claimed_and_settled_in_several_calls(queue, url, policy):
    server = redis.Redis.from_url(url)
    queue.configure(**policy)
    sent = queue.send_many(range(1200))
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=1000)
        assert [one.id for one in messages] == sent[:1000]
        server.config_resetstat()
        consumer.ack(*messages[:600])
        assert server.info("commandstats")["cmdstat_evalsha"]["calls"] >= 3
        consumer.ack(*messages[601::2])
        consumer.release(*messages[600::2])
        stats = queue.stats()
        assert (stats.ready, stats.processing, stats.counters["acked"]) == (400, 0, 800)
        assert len(consumer.claim(limit=1000)) == 400
    server.close()


def test_a_claim_in_several_calls_brings_no_more_bytes_than_one(queue):
    queue.send_many([b"x" * 30_000] * 600)
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=600)
    assert 256 < len(messages) < 300


def test_a_lease_that_was_lost_before_several_calls_loses_all_of_the_messages(queue, store):
    queue.send_many(range(600))
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=600)
        (name,) = store.call(reliq.ops.members(KEYS.consumers))
        store.call([reliq.ops.command("DEL", key) for key in (KEYS.lease(name), KEYS.processing(name))])
        with pytest.raises(LeaseLost, match="600 of the 600 messages"):
            consumer.ack(*messages)
