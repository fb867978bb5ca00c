"""A worker with one thread reads large bodies while handlers run: none gets lost or mixed up, few are in memory."""

import gc
import itertools
import threading
from queue import SimpleQueue
from typing import Any

import pytest

import reliq
from reliq.contract.values import READ_AHEAD_BYTES, STREAM_BYTES
from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.model.keys import QueueKeys, new_owner
from reliq.ops import command
from reliq.protocol.consumer import ConsumerSteps
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq.worker.inline import InlineLoop
from reliq.worker.loop import Shared
from reliq.worker.prefetch import MOST
from reliq.worker.runner import Runner
from tests.support.handlers import settled
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

KIB = 1024
KEYS = QueueKeys("q")
SIZES = (200, KIB + 1, 5 * KIB, 70 * KIB, 300 * KIB, 1000 * KIB)


def body(number, size=5 * KIB):
    return b"%d " % number + b"x" * size


def number_of(message):
    number, _, filling = message.body.partition(b" ")
    assert filling == b"x" * len(filling)
    return int(number)


@pytest.fixture
def store(url):
    store = Store(url, timeout=0.1)
    yield store
    store.close()


@pytest.fixture
def loop(app, store):
    """A loop that a test drives; its handler notes the numbers of its messages."""
    started: list[int] = []

    @app.handler("q")
    def handle(message):
        started.append(number_of(message))
        getattr(loop, "meanwhile", int)()

    (handler,), owner = app.handlers, new_owner()
    exchange = Exchange(store, "q", owner, 15.0, on_dead=lambda move: pytest.fail(f"{move.id} died"))
    loop: Any = InlineLoop(exchange, Runner(store, handler, exchange, owner), Shared())
    loop._prefetch.latest = MOST  # as after some batches of a quick handler
    loop._prefetch._mean = 0.0
    loop.started = started
    yield loop
    exchange.close()


def test_bodies_of_all_sizes_reach_their_messages_in_order(app):
    handled = []
    app.handler("q")(lambda message: handled.append((number_of(message), message.size)))
    bodies = [body(number, size) for number, size in zip(range(300), itertools.cycle(SIZES), strict=False)]
    app.queue("q").send_many(bodies)
    with working(app):
        eventually(lambda: settled(app), timeout=60)
    if app.queue("q").stats().counters.get("released"):  # a watchdog that did not get on for a while handed some back
        handled.sort()
    assert handled == [(number, len(sent)) for number, sent in enumerate(bodies)]
    assert app.store.call(command("HLEN", KEYS.bodies)) == 0


@pytest.mark.long
def test_a_lost_connection_loses_none_of_what_was_claimed_and_requested_ahead(app, redis_server):
    """It is cut anywhere: in the reply of a claim, between it and the request for bodies, within a body."""
    handled, count = [], 0
    app.handler("q")(lambda message: handled.append(number_of(message)))

    def cut_every_fiftieth(data):
        nonlocal count
        count += 1
        return None if count % 50 == 0 else data[: 64 * KIB] if count % 50 == 49 else data

    total = 20 * MOST
    app.queue("q").send_many([body(number) for number in range(total)])
    with Proxy(redis_server.port, reply=cut_every_fiftieth) as proxy, working(app, url=proxy.url):
        eventually(lambda: settled(app), timeout=90)
    assert count > 100
    assert sorted(handled) == list(range(total)), "nothing is lost, and nothing runs twice"
    assert app.queue("q").stats().counters["acked"] == total


def test_a_message_whose_bodies_cannot_be_read_now_starts_later(app, url, store, loop):
    app.queue("q").send_many([body(number, 300 * KIB) for number in range(8)])
    loop.exchange.ensure_registered()
    loop._take_next_batch()
    loop.exchange._connection.close()
    store.redirect("redis://127.0.0.1:1/0")
    for _ in range(2):
        with pytest.raises((RedisUnavailable, OutcomeUnknown)):
            loop._run_batch()
    assert loop.started == []
    assert len(loop.exchange.unstarted) == 8
    store.redirect(url)
    loop._run_batch()
    loop.step()
    assert loop.started == list(range(8))
    assert app.queue("q").stats().counters["acked"] == 8


def test_a_message_that_was_handed_back_and_is_claimed_again_is_settled(app, loop):
    """Its body was read for its former push, which has another element."""
    app.queue("q").send_many([body(0), body(1)])
    loop.exchange.ensure_registered()
    loop._take_next_batch()
    loop.meanwhile = loop.exchange.relieve  # the watchdog, while the handler of the first one runs
    loop._run_batch()
    assert loop.started == [0]
    del loop.meanwhile
    loop.step()
    loop.exchange.settle_and_claim(0)
    stats = app.queue("q").stats()
    assert loop.started == [0, 1]
    assert (stats.counters["acked"], stats.ready, stats.processing) == (2, 0, 0)


def test_a_message_whose_lease_was_lost_before_its_body_was_read_is_not_started(app, store, loop):
    """This worker does not know, and others have acked all; it had requested only the body of the first message."""
    queue = app.queue("q")
    queue.send_many([body(number, 700 * KIB) for number in range(3)])
    loop.exchange.ensure_registered()
    loop._take_next_batch()
    store.call(command("SET", KEYS.lease(loop.exchange.steps.consumer), 1))
    Monitor(store).scan()
    with queue.consumer() as other:
        while messages := other.claim(3):
            other.ack(*messages)
    loop._run_batch()
    assert loop.started == [0]
    loop.exchange.settle_and_claim(0)
    stats = queue.stats()
    assert (stats.dead, stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 0, 3)


def test_a_message_whose_body_another_program_has_deleted_becomes_a_dead_letter(app):
    handled = []
    app.handler("q")(lambda message: handled.append(number_of(message)))
    queue = app.queue("q")
    queue.send(body(0))
    kept = set(app.store.call(command("HKEYS", KEYS.bodies)))
    queue.send(body(1))
    (lost,) = set(app.store.call(command("HKEYS", KEYS.bodies))) - kept
    queue.send(body(2))
    app.store.call(command("HDEL", KEYS.bodies, lost))
    with working(app):
        eventually(lambda: settled(app))
    assert handled == [0, 2]
    assert [letter.reason for letter in queue.dead.list(bodies=False)] == ["decode"]


def test_redelivered_messages_with_large_bodies_run_one_by_one(app, store):
    handled = []
    app.handler("q")(lambda message: handled.append((number_of(message), message.redelivered)))
    queue = app.queue("q")
    queue.send_many([body(number) for number in range(2 * MOST)])
    vanished = ConsumerSteps(KEYS, new_owner(connected=False), 15.0)
    assert len(store.run(vanished.claim(MOST + 10))) == MOST + 10
    store.call(command("SET", KEYS.lease(vanished.consumer), 1))
    Monitor(store).scan()
    with working(app):
        eventually(lambda: settled(app), timeout=60)
    assert sorted(handled) == [(number, number < MOST + 10) for number in range(2 * MOST)]


def test_a_message_whose_body_arrives_after_a_stop_is_handed_back(app, loop):
    app.queue("q").send(body(0))
    loop.exchange.ensure_registered()
    loop._take_next_batch()
    receive = loop._bodies._receive

    def receive_and_stop():
        loop.stopping = True
        return receive()

    loop._bodies._receive = receive_and_stop
    loop._run_batch()
    loop.step()
    assert loop.started == []
    assert loop.exchange.leave(loop.busy)
    stats = app.queue("q").stats()
    assert (stats.ready, stats.processing, stats.consumers) == (1, 0, 0)


def test_a_worker_that_stops_returns_what_it_has_not_started(app):
    handled, enough = [], threading.Event()

    def handle(message):
        handled.append(number_of(message))
        if len(handled) == 3 * MOST:
            enough.set()

    app.handler("q")(handle)
    total = 40 * MOST
    app.queue("q").send_many([body(number) for number in range(total)])
    with working(app):
        assert enough.wait(30)
    stats = app.queue("q").stats()
    assert len(set(handled)) == len(handled) < total  # in another order if the watchdog handed some back meanwhile
    assert (stats.counters["acked"], stats.ready, stats.processing) == (len(handled), total - len(handled), 0)
    assert stats.consumers == 0
    assert app.store.call(command("HLEN", KEYS.bodies)) == stats.ready


def test_behind_a_slow_handler_no_bodies_are_read_and_the_others_get_the_messages(app, client):
    slow: SimpleQueue[int] = SimpleQueue()
    size, quick, release, handled = 20 * KIB, 4 * MOST, threading.Event(), []

    def handle(message):
        handled.append(number_of(message))
        if len(handled) == quick:
            slow.put(client.info("stats")["total_net_output_bytes"])
            assert release.wait(30)

    app.handler("q")(handle)
    total = quick + 4 * MOST
    app.queue("q").send_many([body(number, size) for number in range(total)])
    before = client.info("stats")["total_net_output_bytes"]
    with working(app):
        sent = slow.get(timeout=30) - before
        elements = 200 * total
        assert sent <= quick * (size + 100) + READ_AHEAD_BYTES + STREAM_BYTES + elements
        eventually(lambda: app.queue("q").stats().processing == 1)
        release.set()
        eventually(lambda: settled(app))
    assert sorted(handled) == list(range(total))


def test_a_body_is_in_memory_only_shortly_before_and_while_its_handler_runs(app):
    size, total, found = 20 * KIB, 6 * MOST, []

    def handle(message):
        if number_of(message) in (total // 2, total - 1):
            every = [one for one in gc.get_objects() if type(one) is reliq.Message and one.queue == "here"]
            found.append(sum(one.body_is_read for one in every))

    app.handler("here")(handle)
    app.queue("here").send_many([body(number, size) for number in range(total)])
    with working(app):
        eventually(lambda: len(found) == 2, timeout=60)
    assert max(found) <= STREAM_BYTES // size + 1


def test_a_handler_may_keep_its_message_and_is_told_when_it_is_lost(app):
    kept: SimpleQueue[reliq.Message] = SimpleQueue()
    release = threading.Event()

    @app.handler("q")
    def handle(message):
        kept.put(message)
        assert release.wait(30)

    store = app.store
    app.queue("q").send(body(1))
    with working(app, lease=1.0):
        message = kept.get(timeout=20)
        assert not message.lost
        (consumer,) = store.call(reliq.ops.members(KEYS.consumers))
        store.call(command("DEL", KEYS.lease(consumer), KEYS.processing(consumer)))  # as a reclaim would
        eventually(lambda: message.lost)
        release.set()
    assert number_of(message) == 1
