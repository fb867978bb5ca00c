"""Waiting for messages of a queue with partitions: the server tells which has some; a waiting caller sends nothing."""

import asyncio
import gc
import multiprocessing
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import reliq
from reliq import aio
from reliq.aio.home_waiter import HomeWaiter as AioHomeWaiter
from reliq.client.home_waiter import HomeWaiter
from reliq.contract import values
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq.transport import watch
from reliq.transport.notices import Notices
from tests.integration.api.serving import serving
from tests.support.workers import eventually

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]
LONG = 20.0

Taker = Generator[str]  #: of the ids of messages, as they come


@pytest.fixture(scope="module")
def redis_server() -> Iterator[EmbeddedRedis]:
    """A server of their own: services that other tests have left open look at the shared one, and these count looks."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(autouse=True)
def only_told(monkeypatch):
    """Turn the slow look off: a waiting caller depends on what the server tells."""
    monkeypatch.setattr(values, "SLOW_LOOK", 1000.0)


def by_consumer(url: str) -> Taker:
    with reliq.Reliq(url) as app, app.queue("orders").consumer() as consumer:
        while True:
            (message,) = consumer.claim(wait=LONG)
            consumer.ack(message)
            yield message.id


def by_consumer_of_tasks(url: str) -> Taker:
    async def claim() -> str:
        (message,) = await consumer.claim(wait=LONG)
        await consumer.ack(message)
        return message.id

    with asyncio.Runner() as runner:
        app = aio.Reliq(url)
        consumer = app.queue("orders").consumer()
        runner.run(consumer.__aenter__())
        try:
            while True:
                yield runner.run(claim())
        finally:
            runner.run(consumer.__aexit__(None, None, None))
            runner.run(app.close())


def by_receive(url: str) -> Taker:
    with reliq.Reliq(url) as app:
        queue = app.queue("orders")
        while True:
            (one,) = queue.receive(wait=LONG)
            queue.delete_received([one.receipt])
            yield one.message.id


def by_http(url: str) -> Taker:
    with serving(url) as client:
        while True:
            given = client.post("/v1/queues/orders/leases", json={"wait": LONG}, timeout=2 * LONG).json()
            (message,) = given["messages"]
            yield message["id"]
            client.post(f"/v1/leases/{given['lease']}/settle", json={"ack": [message["id"]]})


TAKERS = [by_consumer, by_consumer_of_tasks, by_receive, by_http]


@pytest.fixture
def started() -> Iterator[Callable[[Taker], Future[str]]]:
    """Ask for the next message of a taker, in a thread."""
    with ThreadPoolExecutor(4) as pool:
        yield lambda taker: pool.submit(next, taker)


def looks(client) -> int:
    """How often the length of a list was asked for, also by scripts."""
    return client.info("commandstats").get("cmdstat_llen", {"calls": 0})["calls"]


def watched(client) -> Callable[[], bool]:
    """Whether a connection tracks the keys of all partitions."""
    return lambda: client.info("clients")["tracking_clients"] > 0 and client.info("stats")["tracking_total_keys"] >= 4


@pytest.mark.parametrize("take", TAKERS)
def test_a_message_of_any_partition_is_told(url, client, orders, started, take):
    taker = take(url)
    for turn in range(8):
        waiting = started(taker)
        eventually(watched(client))
        sent = orders.send("body", key=f"key {turn}")
        assert waiting.result(timeout=LONG) == sent
    taker.close()


@pytest.mark.parametrize(
    ("take", "most"), [(by_consumer, 9), (by_consumer_of_tasks, 9), (by_receive, 150), (by_http, 75)]
)
def test_who_waits_asks_for_nothing(url, client, orders, started, take, most):
    """Looks five times a second would be 80 in four seconds, beside those of the service itself for its dashboard."""
    taker = take(url)
    waiting = started(taker)
    eventually(watched(client))
    time.sleep(0.5)  # it has looked, and is told from now on
    before = looks(client)
    time.sleep(4.0)
    assert looks(client) - before < most
    orders.send("body")
    waiting.result(timeout=LONG)
    taker.close()


@pytest.mark.parametrize("take", TAKERS)
def test_where_the_server_tells_nothing_it_looks(url, client, orders, started, take):
    client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "-client|tracking")
    try:
        taker = take(url.replace("//", "//narrow:pw@"))
        waiting, before = started(taker), looks(client)
        eventually(lambda: looks(client) >= before + 2 * len(NAMES))
        sent = orders.send("body")
        assert waiting.result(timeout=LONG) == sent
        taker.close()
    finally:
        client.execute_command("ACL", "DELUSER", "narrow")


@pytest.mark.parametrize("take", TAKERS)
def test_a_lost_notice_costs_the_slow_look(url, client, orders, started, take, monkeypatch):
    monkeypatch.setattr(Notices, "take", lambda self: None)
    monkeypatch.setattr(values, "SLOW_LOOK", 1.0)
    taker = take(url)
    waiting = started(taker)
    eventually(watched(client))
    sent = orders.send("body")
    assert waiting.result(timeout=LONG) == sent
    taker.close()


@pytest.mark.parametrize("take", TAKERS)
def test_after_all_connections_were_cut_it_goes_on(url, client, orders, started, take):
    taker = take(url)
    waiting = started(taker)
    eventually(watched(client))
    for one in client.client_list():
        if one["id"] != str(client.client_id()):
            client.client_kill_filter(_id=one["id"])
    sent = orders.send("body")
    assert waiting.result(timeout=LONG) == sent
    taker.close()


def test_a_claim_that_does_not_wait_finds_what_was_just_sent(url, orders):
    with orders.consumer() as consumer:
        for turn in range(20):
            assert consumer.claim(wait=0.25) == []
            sent = orders.send("body", key=f"key {turn}")
            (message,) = consumer.claim()
            assert message.id == sent
            consumer.ack(message)


def test_a_consumer_of_a_paused_queue_looks_now_and_then(url, client, orders, started):
    orders.send_many(["body"] * 8)
    orders.pause()
    taker = by_consumer(url)
    waiting = started(taker)
    eventually(lambda: any(client.exists(QueueKeys(name).consumers) for name in NAMES))
    before = looks(client)
    time.sleep(1.0)
    assert looks(client) - before < 50
    orders.resume()
    assert waiting.result(timeout=LONG)
    taker.close()


def test_a_free_slot_is_told(url, client, orders, started, monkeypatch):
    monkeypatch.setattr(values, "SLOW_LOOK", 1000.0)
    orders.configure(partitions=2, concurrency=2)
    orders.send_many(["body"] * 4)
    with orders.consumer(lease=3600) as holder:
        (held,) = holder.claim(4)  # the partition that has all four has one of the two slots
        taker = by_consumer(url)
        waiting = started(taker)
        time.sleep(0.5)
        assert not waiting.done()
        holder.ack(held)
        assert waiting.result(timeout=LONG)
        taker.close()


def test_consumers_that_are_told_at_once_share_the_messages(url, orders):
    """Each of them gets what the others do not, and every message once."""
    taken: list[str] = []
    ended = threading.Event()

    def consume() -> None:
        with reliq.Reliq(url) as app, app.queue("orders").consumer() as consumer:
            while not ended.is_set():
                messages = consumer.claim(wait=1)
                consumer.ack(*messages)
                taken.extend(one.id for one in messages)

    with ThreadPoolExecutor(5) as pool:
        consumers = [pool.submit(consume) for _ in range(5)]
        sent = [orders.send("body") for _ in range(100)]
        try:
            eventually(lambda: len(taken) >= 100)
        finally:
            ended.set()
        for one in consumers:
            one.result()
    assert sorted(taken) == sorted(sent)


def _in_child(app: reliq.Reliq, ids: "multiprocessing.SimpleQueue[str]") -> None:
    with app.queue("orders").consumer() as consumer:
        for message in consumer.claim(wait=LONG):
            consumer.ack(message)
            ids.put(message.id)


def test_a_child_of_a_process_that_has_waited_waits_too(url, client, orders):
    context = multiprocessing.get_context("fork")
    with reliq.Reliq(url) as app:
        with app.queue("orders").consumer() as consumer:
            assert consumer.claim(wait=0.5) == []
        ids = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(app, ids))
        child.start()
        eventually(lambda: client.info("clients")["tracking_clients"] == 2)
        sent = orders.send("body")
        child.join(LONG)
        assert (child.exitcode, ids.get()) == (0, sent)


def test_a_caller_to_whom_others_were_faster_a_thousand_times_still_waits(url):
    key = QueueKeys("orders").messages

    async def wait() -> bool:
        async with aio.Reliq(url) as app:
            return await AioHomeWaiter(app.store).wait([key], 0.1, 0.1, in_vain=5000)

    assert asyncio.run(wait()) is False
    with reliq.Reliq(url) as app:
        assert HomeWaiter(app.store).wait([key], 0.1, 0.1, in_vain=5000) is False


def test_the_thread_that_waits_ends_with_its_application(url, orders):
    with reliq.Reliq(url) as app:
        with app.queue("orders").consumer() as consumer:
            assert consumer.claim(wait=0.5) == []
        (waits,) = app.store.watches.by_node.values()
        assert waits.is_alive()
    waits.join(timeout=10)
    assert not waits.is_alive()


def waiters(server) -> int:
    """How many callers the watches of this process would tell of a message."""
    gc.collect()
    return max(len(some) for one in server.watches.by_node.values() for some in one._waiting.values())


def test_consumers_that_have_ended_wait_no_more(url, orders):
    with reliq.Reliq(url) as app:
        for _ in range(5):
            with app.queue("orders").consumer() as consumer:
                assert consumer.claim(wait=0.1) == []
        del consumer
        eventually(lambda: waiters(app.store) == 0)


def test_consumers_of_tasks_that_have_ended_wait_no_more(url, orders):
    async def claim(app: aio.Reliq) -> None:
        async with app.queue("orders").consumer() as consumer:
            assert await consumer.claim(wait=0.1) == []

    async def claim_often() -> None:
        async with aio.Reliq(url) as app:
            for _ in range(5):
                await claim(app)
            assert waiters(app.store) == 0

    asyncio.run(claim_often())


def test_polls_that_have_ended_wait_no_more(url, orders):
    with serving(url) as client:
        for _ in range(5):
            assert client.post("/v1/queues/orders/leases", json={"wait": 0.1}).json()["messages"] == []
        eventually(lambda: waiters(client.app.state.reliq.store) == 0)


def test_keys_that_nobody_waits_for_any_more_are_forgotten(app, orders, monkeypatch):
    """Queues come and go: else a process asked about those of the past for ever, and more rarely about each."""
    monkeypatch.setattr(values, "SLOW_LOOK", 0.1)
    monkeypatch.setattr(watch, "_SLOWEST_LOOK", 0.1)

    def after_a_consumer() -> watch.Watch:
        with orders.consumer() as consumer:
            eventually(lambda: consumer.claim(wait=0.05) or app.store.watches.by_node)
            (one,) = app.store.watches.by_node.values()
            eventually(lambda: consumer.claim(wait=0.05) or len(one._waiting) == len(one._asked) == len(NAMES))
        return one

    one = after_a_consumer()
    eventually(lambda: gc.collect() >= 0 and not (one._waiting or one._asked))
    eventually(lambda: orders.receive(wait=0.05) or one._asked)
    eventually(lambda: gc.collect() >= 0 and not (one._waiting or one._asked))
