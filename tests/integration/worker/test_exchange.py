"""What a loop and its watchdog share: nothing is settled twice or forgotten, and no loop leaves too early."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import reliq
from reliq import ops
from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.model.keys import new_owner
from reliq.model.life import Report
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Destination, Move, command
from reliq.protocol.outcomes import buried, failure_now, retried
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq.worker.inline import InlineLoop
from reliq.worker.loop import Shared
from reliq.worker.pooled import PooledLoop
from reliq.worker.prefetch import MOST
from reliq.worker.runner import Runner
from reliq.worker.trials import ALONE
from tests.support.losing_proxy import LosingProxy, scripts_of
from tests.support.turns import Monitor
from tests.support.workers import eventually, working


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
    exchange.ensure_registered()
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
    exchange.ensure_registered()
    other.ensure_registered()
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


@pytest.mark.parametrize("waits", [False, True])
def test_a_consumer_that_was_handed_back_is_unregistered_unless_it_still_waits(exchange, store, queue, waits):
    """A BLMOVE under way looks at no lease: what it moves would be with a consumer that no monitor sees."""
    queue.send("runs")
    exchange.settle_and_claim(1)
    consumer, connection = exchange.steps.consumer, store.connection()
    exchange._waits = waits
    exchange.hand_back(connection)
    assert exchange.unregister(connection, consumer, until=0) is not waits
    connection.close()
    stats = queue.stats()
    assert (stats.ready, stats.consumers) == (1, int(waits))
    assert exchange.wait(1) == []
    assert queue.stats().ready == 1


def test_what_a_late_blmove_has_moved_keeps_its_consumer_registered(exchange, store, queue, client):
    queue.send("runs")
    exchange.settle_and_claim(1)
    keys, consumer, connection = exchange.steps.keys, exchange.steps.consumer, store.connection()
    exchange.hand_back(connection)
    client.lmove(keys.messages, keys.processing(consumer), "RIGHT", "LEFT")
    assert not exchange.unregister(connection, consumer, until=0)
    connection.close()
    assert queue.stats().consumers == 1


def test_every_death_is_told_once(exchange, store):
    told: list[Move] = []
    exchange._on_dead = told.append
    expired = [NewMessage(b"x", ttl=1) for _ in range(20)]
    store.call(ops.enqueue(exchange.steps.keys, [message.element(1) for message in expired]))
    assert exchange.settle_and_claim(10) == exchange.wait(10) == []
    assert sorted(move.id for move in told) == sorted(message.id for message in expired)


def test_a_death_at_the_end_of_the_grace_is_told(exchange, store, queue):
    told: list[Move] = []
    exchange._on_dead = told.append
    queue.send_many(["dies", "runs"])
    dies, _ = exchange.settle_and_claim(2)
    exchange.move(buried(dies, failure_now("w", "ValueError", "no"), "rejected"))
    connection = store.connection()
    exchange.hand_back(connection)
    connection.close()
    assert [move.id for move in told] == [dies.id]
    assert (queue.stats().dead, queue.stats().ready) == (1, 1)


def test_what_was_cancelled_since_the_latest_heartbeat_is_not_handed_back(exchange, store, queue):
    queue.send_many(["runs", "has failed", "waits"])
    runs, failed, waits = exchange.settle_and_claim(3)
    assert [queue.cancel(one.id) for one in (runs, failed, waits)] == ["told"] * 3
    exchange.move(retried(failed, failure_now("w", "ValueError", "no"), 0.0))
    connection = store.connection()
    exchange.hand_back(connection, {runs.element})
    connection.close()
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.counters["cancelled"]) == (0, 0, 3)


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


@pytest.mark.parametrize("way", ["relieve", "quarantine", "hand back", "release"])
@pytest.mark.parametrize("limits", [{"rate": "5/h", "burst": 5}, {"key_rate": "1/h"}], ids=min)
def test_what_is_handed_back_unstarted_gives_its_tokens_back(exchange, store, queue, way, limits):
    """The rate says how many messages start, and a worker hands back what waits behind a slow one."""
    queue.configure(**limits)
    for number in range(5):
        queue.send(number, limit_key=f"t{number}")
    if way == "release":
        with queue.consumer() as consumer:
            consumer.release(*consumer.claim(5))
    else:
        exchange.add_unstarted(exchange.settle_and_claim(5))
        if way == "quarantine":
            exchange.quarantined.extend(exchange.unstarted)
            exchange.unstarted.clear()
            exchange.release_quarantined(0)
        connection = store.connection()
        (exchange.hand_back if way == "hand back" else exchange.relieve)(connection)
        connection.close()
    with queue.consumer() as consumer:
        assert len(consumer.claim(5)) == 5


@pytest.mark.parametrize("size", [10, 300_000])
def test_what_was_started_has_spent_its_token(app, queue, size):
    """At the end of the grace, the messages whose handlers run are handed back too."""
    started, ended = threading.Event(), threading.Event()

    @app.handler("q")
    def handle(message):
        started.set()
        assert ended.wait(60)

    queue.configure(rate="2/h", burst=2)
    queue.send_many(["x" * size] * 2)
    with working(app, grace=0.1):
        assert started.wait(30)
    ended.set()
    with queue.consumer() as consumer:
        assert len(consumer.claim(2)) == 1


@pytest.mark.parametrize("limits", [{"rate": "1/h"}, {"key_rate": "1/h"}], ids=min)
def test_a_consumer_that_waits_gets_what_is_handed_back(exchange, queue, limits):
    """The tokens are back before the message is."""
    queue.configure(**limits)
    for _ in range(3):  # with a rate, each claim looks after five seconds
        queue.send("x", limit_key="t")
        exchange.add_unstarted(exchange.settle_and_claim(1))
        with queue.consumer() as consumer, ThreadPoolExecutor(1) as thread:
            claimed = thread.submit(consumer.claim, 1, wait=10)
            eventually(lambda: queue.stats().consumers == 2)
            exchange.relieve()
            (message,) = claimed.result()
            consumer.release(message)
            (message,) = consumer.claim(1)
            message.charge(0)
            consumer.ack(message)


def test_what_was_charged_keeps_what_it_was_charged(queue):
    queue.configure(rate="1/h", burst=100)
    queue.send_many([NewMessage("x", cost=50) for _ in range(4)])
    with queue.consumer() as consumer:
        first, _ = consumer.claim(4)
        first.charge(0)
        consumer.release(first)
        assert len(consumer.claim(4)) == 1


def test_an_answer_that_is_lost_gives_tokens_back_once(losing, queue):
    queue.configure(rate="1/h", burst=4)
    queue.send_many(range(10))
    with reliq.Reliq(losing.url) as app, app.queue("q").consumer() as consumer:
        first, *_ = consumer.claim(4)
        losing.armed = True
        with contextlib.suppress(OutcomeUnknown):
            consumer.release(first)
        losing.armed = False
        assert len(consumer.claim(4)) == 1


def test_what_could_not_be_handed_back_keeps_its_order(exchange, store, queue, url):
    queue.send_many(range(5))
    exchange.add_unstarted(exchange.settle_and_claim(5))
    store.redirect("redis://127.0.0.1:1/0")
    with pytest.raises(RedisUnavailable):
        exchange.relieve()
    store.redirect(url)
    exchange.relieve()
    with queue.consumer() as consumer:
        assert [message.json() for message in consumer.claim(5)] == [0, 1, 2, 3, 4]


# --- a settlement that fails, or whose answer is lost ---

RULE = reliq.breaker(threshold=0.5, minimum=3, window="1m", open_for="1m")


@pytest.fixture
def losing(redis_server):
    """A proxy that loses the answers to settlements."""
    with LosingProxy(redis_server.port, scripts_of("q")) as proxy:
        yield proxy


@pytest.fixture
def through(losing):
    """An exchange with a breaker behind that proxy, and the ids of the messages whose death it has told."""
    told: list[str] = []
    store = Store(losing.url, timeout=0.1)
    exchange = Exchange(store, "q", new_owner(), 15.0, on_dead=lambda move: told.append(move.id), breaker=RULE)
    yield exchange, told
    exchange.close()
    store.close()


def settle_with_a_lost_answer(exchange, losing, how):
    """Settle in the loop's own thread, or in another one; the answer is lost, and the call is repeated."""
    settle = (lambda: exchange.settle_and_claim(0)) if how == "loop" else exchange.relieve
    losing.armed = True
    with pytest.raises(OutcomeUnknown):
        settle()
    losing.armed = False
    settle()


@pytest.mark.parametrize("how", ["loop", "watchdog"])
def test_after_a_lost_answer_a_death_is_told_and_a_failure_counted_once(through, losing, queue, client, how):
    exchange, told = through
    queue.send_many(["first", "x"])
    (first,) = exchange.settle_and_claim(1)
    exchange.ack(first.element)  # with this the server knows the scripts
    (message,) = exchange.settle_and_claim(1)
    exchange.move(buried(message, failure_now("w", "ValueError", "no"), "max_failures"))
    settle_with_a_lost_answer(exchange, losing, how)
    assert (queue.stats().dead, told) == (1, [message.id])
    assert (client.hget(exchange.steps.keys.flow, "breaker_failed"), queue.stats().breaker) == (b"1", "closed")


@pytest.mark.parametrize("how", ["loop", "watchdog"])
def test_after_a_lost_answer_the_reports_of_a_handled_message_are_deleted(through, losing, queue, client, how):
    exchange, _ = through
    queue.send("x", id="order-7")
    (message,) = exchange.settle_and_claim(1)
    exchange._store.run(exchange.steps.lives.report(exchange.steps.consumer, message, Report(state=b"half"), 0))
    assert client.exists(exchange.steps.keys.report("order-7"))
    exchange.ack(message.element)
    settle_with_a_lost_answer(exchange, losing, how)
    assert not client.exists(exchange.steps.keys.report("order-7"))


@pytest.mark.parametrize("how", ["loop", "watchdog"])
def test_a_hold_is_told_again_where_settling_failed(exchange, store, queue, client, url, how):
    queue.send("x")
    (message,) = exchange.settle_and_claim(1)
    exchange.ack(message.element)
    others: list[float] = []
    exchange.reports.hold_others = others.append
    exchange.hold(60.0, None)
    settle = (lambda: exchange.settle_and_claim(0)) if how == "loop" else exchange.relieve
    store.redirect("redis://127.0.0.1:1/0")
    with pytest.raises(RedisUnavailable):
        settle()
    with pytest.raises(RedisUnavailable):
        settle()
    (hold,) = exchange.reports._holds
    exchange.reports._holds[0] = hold._replace(until=hold.until - 30)  # as if Redis had been away for so long
    store.redirect(url)
    settle()
    left = int(client.hget(exchange.steps.keys.flow, "held_until")) / 1000 - client.time()[0]
    assert 20 < left < 31, "until the moment that was first said"
    assert len(others) == 1, "the other homes of the queue are held once"


@pytest.mark.parametrize(("failed", "state"), [(False, "closed"), (True, "open")])
def test_how_a_probe_ended_is_told_again_where_settling_failed(through, queue, client, url, losing, failed, state):
    exchange, _ = through
    queue.open_breaker("1m")
    queue.send("x")
    client.hset(exchange.steps.keys.flow, "breaker_until", 0)
    (message,) = exchange.settle_and_claim(1) or exchange.settle_and_claim(1)
    assert queue.stats().breaker == "half_open"
    if failed:
        exchange.move(retried(message, failure_now("w", "ValueError", "no"), 0.0))
    else:
        exchange.ack(message.element)
    exchange._store.redirect("redis://127.0.0.1:1/0")
    with pytest.raises(RedisUnavailable):
        exchange.settle_and_claim(0)
    exchange._store.redirect(losing.url)
    exchange.settle_and_claim(0)
    assert queue.stats().breaker == state


@pytest.mark.parametrize(("failed", "state"), [(False, "closed"), (True, "open")])
def test_a_probe_whose_claim_got_no_answer_is_known_as_one(through, queue, client, losing, failed, state):
    """A failed one goes back uncharged, and the breaker is open for as long again."""
    exchange, _ = through
    queue.open_breaker("1m")
    assert exchange.settle_and_claim(1) == []  # with this the server knows the script
    queue.send("x")
    client.hset(exchange.steps.keys.flow, "breaker_until", 0)
    exchange.steps.limits.try_another()
    losing.armed = True
    with pytest.raises(OutcomeUnknown):
        exchange.settle_and_claim(1)
    losing.armed = False
    (message,) = exchange.settle_and_claim(1)
    assert queue.stats().breaker == "half_open"
    if failed:
        exchange.move(retried(message, failure_now("w", "ValueError", "no"), 0.0))
    else:
        exchange.ack(message.element)
    exchange.settle_and_claim(0)
    assert queue.stats().breaker == state
    assert "retried" not in queue.stats().counters


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


def pooled(exchange, runner, shared):
    return PooledLoop(exchange, runner, shared, 2, submit=lambda task: task())


@pytest.mark.parametrize("make", [InlineLoop, pooled])
def test_no_redelivered_message_starts_beside_one_that_runs_alone(app, exchange, store, queue, client, make):
    """Not in another loop of the process either: the monitor charges the one that is marked."""
    ran: list[bytes] = []
    app.handler("q")(lambda message: ran.append(message.body))
    queue.send("x")
    (element,) = client.lrange(exchange.steps.keys.messages, 0, -1)
    again = Message.decode("q", element).again(redelivered=True)
    client.lset(exchange.steps.keys.messages, 0, again)
    (handler,) = app.handlers
    shared, other = Shared(), Message.decode("other", again)
    loop = make(exchange, Runner(store, handler, exchange, new_owner()), shared)
    assert shared.trials.begin(other) == ALONE
    for _ in range(3):
        loop.step()
    assert ran == []
    shared.trials.end(other.element)
    for one in client.zrange(exchange.steps.keys.delayed, 0, -1):
        client.zadd(exchange.steps.keys.delayed, {one: 1})  # it was put back for a moment
    Monitor(store).promote()
    eventually(lambda: loop.step() or not (ran == [] or shared.trials.running))


class WatchdogComes(deque):
    """Redelivered messages that wait: at the nth look of the loop at them the watchdog hands all back."""

    def __init__(self, exchange, looks):
        super().__init__(exchange.quarantined)
        self._exchange, self._looks = exchange, looks

    def _look(self):
        self._looks -= 1
        if self._looks == 0:
            self._exchange.release_quarantined(0.0)

    def __getitem__(self, place):
        self._look()
        return super().__getitem__(place)

    def __bool__(self):
        self._look()
        return len(self) > 0

    def popleft(self):
        self._look()
        return super().popleft()


@pytest.mark.parametrize("deliveries", [0, 1], ids=["redelivered", "suspect"])
@pytest.mark.parametrize("looks", range(1, 9))
def test_a_redelivered_message_that_the_watchdog_hands_back_just_then_ends_no_loop(
    app, exchange, store, queue, looks, deliveries
):
    app.handler("q")(lambda message: None)
    element = Message.decode("q", NewMessage("x").element(1)).again(deliveries=deliveries, redelivered=True)
    store.call(command("LPUSH", queue._steps.keys.messages, element))
    (handler,) = app.handlers
    shared, tasks = Shared(), list[Callable[[], Any]]()
    loop = PooledLoop(exchange, Runner(store, handler, exchange, new_owner()), shared, 2, tasks.append)
    (message,) = exchange.settle_and_claim(1)
    exchange.quarantined.append(message)
    exchange.quarantined = WatchdogComes(exchange, looks)
    loop.step()
    while not tasks:
        loop.step()
    tasks.pop()()
    loop.step()
    assert not shared.trials.running
    assert queue.stats().counters["acked"] == 1


@pytest.mark.parametrize(("group", "comes"), [(None, False), ("a key", True)], ids=["queue", "key"])
def test_the_call_that_holds_a_queue_claims_nothing_for_it(exchange, queue, group, comes):
    queue.send_many(["fails", "waits"])
    (message,) = exchange.settle_and_claim(1)
    exchange.hold(60.0, group)
    exchange.move(retried(message, failure_now("w", "Retry", "too many requests"), 60.0))
    assert bool(exchange.settle_and_claim(100)) is comes
    assert bool(exchange.settle_and_claim(100)) is False
