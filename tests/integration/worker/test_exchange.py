"""What a loop and its watchdog share: nothing is settled twice or forgotten, and no loop leaves too early."""

import threading

import pytest

from reliq import ops
from reliq.errors import RedisUnavailable
from reliq.model.keys import new_owner
from reliq.model.outgoing import NewMessage
from reliq.ops import Destination, Move
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq.worker.loop import Shared
from reliq.worker.pooled import PooledLoop
from reliq.worker.prefetch import MOST
from reliq.worker.runner import Runner


@pytest.fixture
def store(url):
    store = Store(url, timeout=0.1)
    yield store
    store.close()


@pytest.fixture
def exchange(store):
    exchange = Exchange(store, "q", new_owner(), 15.0, on_dead=lambda move: pytest.fail(f"{move.id} died"))
    yield exchange
    exchange.close()


@pytest.fixture
def queue(app):
    return app.queue("q")


def idle():
    return False


def stuck(exchange):
    exchange.progress_at = float("-inf")
    assert exchange.stuck()


def test_what_could_not_be_settled_is_settled_later(exchange, store, queue, url):
    queue.send_many(["a", "b"])
    first, second = exchange.settle_and_claim(2)
    exchange.ack(first.element)
    exchange.move(Move(second.element, Destination.HEAD, "released", second.id, second.again()))
    store.redirect("redis://127.0.0.1:1/0")
    with pytest.raises(RedisUnavailable):
        exchange.settle_and_claim(0)
    with pytest.raises(RedisUnavailable):
        exchange.relieve()
    store.redirect(url)
    exchange.settle_and_claim(0)
    stats = queue.stats()
    assert (stats.counters["acked"], stats.ready, stats.processing) == (1, 1, 0)


def test_a_loop_rests_when_it_holds_nothing_and_no_message_has_come_for_a_while(exchange, queue):
    exchange.be_registered()
    assert not exchange.quiet_for(60)
    assert exchange.quiet_for(0)
    queue.send("a")
    (message,) = exchange.settle_and_claim(1)
    exchange.add_unstarted([message])
    assert not exchange.quiet_for(0)
    exchange.ack(exchange.unstarted.popleft().element)
    assert not exchange.quiet_for(0)
    watchdog = exchange.steps.settle_op
    exchange.steps.settle_op = lambda *given: [watchdog(*given), assert_busy(exchange)][0]
    exchange.relieve()
    assert exchange.quiet_for(0)


def assert_busy(exchange):
    """While the watchdog settles what it has taken out, the loop does not rest: that may fail."""
    assert not exchange._acks
    assert not exchange.quiet_for(0)


def test_a_connection_that_another_loop_has_used_claims_at_once(exchange, store, queue):
    other = Exchange(store, "q", new_owner(), 15.0, on_dead=lambda move: pytest.fail(f"{move.id} died"))
    assert other.give_connection() is None  # it has none yet
    exchange.be_registered()
    other.be_registered()
    connection = exchange.give_connection()
    other.take_connection(connection)
    queue.send("a")
    assert [message.body for message in other.settle_and_claim(1)] == [b"a"]
    assert connection.connects == 1
    assert exchange.settle_and_claim(1) == []
    other.relieve()
    other.close()


def test_a_loop_leaves_when_each_of_its_messages_is_settled(exchange, queue):
    queue.send("x")
    exchange.begin(1)
    assert not exchange.leave(idle)  # a call is under way
    exchange.complete_all()
    assert not exchange.leave(idle)  # a message has not started
    message = exchange.unstarted.popleft()
    assert not exchange.leave(lambda: True)  # a handler runs
    exchange.ack(message.element)
    assert not exchange.leave(idle)  # an outcome is not settled
    exchange.settle_and_claim(0)
    assert queue.stats().consumers == 1
    assert exchange.leave(idle)
    assert queue.stats().consumers == 0


def test_a_loop_does_not_leave_while_it_is_watched(exchange, queue):
    queue.send("x")
    (message,) = exchange.settle_and_claim(1)
    leaving = threading.Thread(target=exchange.leave, args=(idle,))
    with exchange.watched() as here:
        assert here
        leaving.start()
        exchange.ack(message.element)
        exchange.relieve()
        assert queue.stats().consumers == 1
    leaving.join(10)
    assert queue.stats().consumers == 0
    with exchange.watched() as here:
        assert not here


def test_nothing_is_handed_back_while_messages_start(exchange, store, queue):
    queue.send("x")
    exchange.add_unstarted(exchange.settle_and_claim(1))
    exchange.progress_at += 60
    exchange.relieve_if_stuck(store.connection())
    assert len(exchange.unstarted) == queue.stats().processing == 1


def test_behind_a_slow_handler_all_is_settled_or_handed_back_uncharged(exchange, store, queue):
    queue.send_many(["done", "waits", "redelivered", "ahead"])
    done, waits, redelivered = exchange.settle_and_claim(3)
    exchange.begin(1)
    exchange.ack(done.element)
    exchange.add_unstarted([waits])
    exchange.quarantined.append(redelivered)
    stuck(exchange)
    connection = store.connection()
    exchange.relieve_if_stuck(connection)
    connection.close()
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.processing, stats.counters["acked"]) == (2, 1, 0, 1)
    with queue.consumer() as consumer:
        assert {(one.body, one.deliveries, one.failures) for one in consumer.claim(limit=2)} == {
            (b"waits", 0, 0),
            (b"ahead", 0, 0),
        }


def test_the_end_of_the_grace_hands_back_what_runs_and_what_is_under_way(exchange, store, queue):
    queue.send_many(["runs", "done", "ahead"])
    _, done = exchange.settle_and_claim(2)
    exchange.ack(done.element)
    exchange.begin(1)
    connection = store.connection()
    exchange.hand_back(connection)
    connection.close()
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (2, 0, 1)
    assert exchange.settle_and_claim(1) == []  # no claim survives the end of the lease


def test_every_death_is_told_once(exchange, store):
    told: list[Move] = []
    exchange._on_dead = told.append
    expired = [NewMessage(b"x", ttl=1) for _ in range(20)]
    store.call(ops.enqueue(exchange.steps.keys, [message.element(1) for message in expired]))
    assert exchange.settle_and_claim(10) == exchange.wait(10) == []
    assert sorted(move.id for move in told) == sorted(message.id for message in expired)


@pytest.mark.parametrize("way", ["relieve", "leave"])
def test_what_is_handed_back_keeps_its_order(exchange, queue, way):
    queue.send_many(range(5))
    exchange.add_unstarted(exchange.settle_and_claim(4))
    if way == "relieve":
        exchange.relieve()
    else:
        exchange.unstarted.clear()
        assert exchange.leave(idle)
    with queue.consumer() as consumer:
        assert [message.json() for message in consumer.claim(5)] == [0, 1, 2, 3, 4]


def test_a_pool_that_has_begun_nothing_yet_is_given_no_more_than_the_limit(app, exchange, store, queue):
    """As on a busy core: its tasks begin later than the next looks of the loop."""
    app.handler("q")(lambda message: None)
    queue.send_many(["x"] * 500)
    tasks = list[object]()
    (handler,) = app.handlers
    runner = Runner(store, handler, exchange, new_owner())
    loop = PooledLoop(exchange, runner, Shared(), 100, tasks.append)
    for _ in range(5):
        loop.step()
    assert len(tasks) == queue.stats().processing <= MOST
