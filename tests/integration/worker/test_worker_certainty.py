"""A worker runs nothing that was settled, returns nothing that is being settled, starts nothing that is another's."""

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

import reliq
from reliq import ops
from reliq.client.heartbeat import Heartbeat
from reliq.model.keys import QueueKeys, instance_of, new_owner
from reliq.model.outgoing import NewMessage
from reliq.ops import Sleep, command
from reliq.protocol.consumer import ConsumerSteps
from reliq.runtime.moment import Moment
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq.worker.runner import Runner
from reliq.worker.watchdog import Watchdog
from tests.support.proxy import Proxy
from tests.support.turns import Monitor
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


def test_a_read_back_does_not_adopt_what_is_settled_while_it_is_under_way(store):
    """The list was read, then the watchdog acked a message of it, then the older list arrived."""
    store.call(ops.enqueue(KEYS, [NewMessage("x").element(0)]))
    consumer = ConsumerSteps(KEYS, new_owner(), 30.0)
    (message,) = store.run(consumer.claim(1))
    consumer.connected(named=True)
    steps = consumer.claim(1)
    older = store.call(next(steps))
    store.call(consumer.settle_op([message.element], []))
    consumer.note_settled([message.element])
    assert rest(store, steps, older) == []


def test_what_a_read_back_finds_of_messages_that_are_just_settled_is_not_handed_out(store):
    """A sleep let the message go, after its time limit had settled it; then Redis lost its latest writes."""
    store.call(ops.enqueue(KEYS, [NewMessage("x").element(0)]))
    consumer = ConsumerSteps(KEYS, new_owner(), 30.0)
    (message,) = store.run(consumer.claim(1))
    consumer.let_go(message)
    consumer.connected(named=True)
    assert store.run(consumer.settle([message.element], (), 1))[1] == []
    assert store.call(ops.held_count(KEYS, consumer.consumer)) == 0


def test_a_row_of_acks_takes_no_other_message_with_it(store):
    """One of the row had left by a call without an answer, and one of a lost call, found later, was in its place."""
    for text in "abcd":
        store.call(ops.enqueue(KEYS, [NewMessage(text).element(0)]))
    consumer = ConsumerSteps(KEYS, new_owner(), 30.0)
    first, second = store.run(consumer.claim(2))
    lost, behind = consumer.claim(1), consumer.claim(1)
    store.call(next(lost))
    request = next(behind)
    with pytest.raises(reliq.OutcomeUnknown):
        lost.throw(reliq.OutcomeUnknown("the reply was lost"))
    (fourth,) = rest(store, behind, store.call(request))
    store.call(consumer.settle_op([second.element], []))
    consumer.note_unanswered([second.element], [])
    (third,) = store.run(consumer.claim(1))
    assert third.body == b"c"
    store.run(consumer.settle([first.element, second.element, fourth.element]))
    assert store.call(ops.read_back(KEYS, consumer.consumer)) == [third.element]


def rest(store, steps, answer):
    """Run steps to their end, of which the first answer is already there; what they return."""
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = None if isinstance(request, Sleep) else store.call(request)


def lasting(app, kind, seconds):
    """Add a handler whose runs last so long, by their message."""
    if kind == "async":

        @app.handler("q")
        async def work(message):
            await asyncio.sleep(seconds(message))
    else:

        @app.handler("q")
        def work(message):
            time.sleep(seconds(message))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["threads", "async"])
def test_restarts_under_load_run_nothing_twice(app, redis_server, kind):
    """Each worker is stopped as soon as it has work. Its watchdog then acks on a connection that is only being made."""
    runs: Counter[int] = Counter()
    together, rounds = 4, 10

    def slowly(data):
        time.sleep(0.04)
        return data

    def seconds(message):
        runs[message.json()] += 1
        return 0.06 + 0.03 * (message.json() % together)

    lasting(app, kind, seconds)
    options: dict[str, Any] = {"threads": together} if kind == "threads" else {"concurrency": together}
    with Proxy(redis_server.port, request=slowly, reply=slowly) as proxy:
        for first in range(0, together * rounds, together):
            app.queue("q").send_many(range(first, first + together))
            with working(app, url=proxy.url, **options):
                eventually(lambda: app.queue("q").stats().counters["enqueued"] - 1 in runs)
    with working(app):
        eventually(lambda: app.queue("q").stats().counters["acked"] == together * rounds)
    assert [number for number, count in runs.items() if count > 1] == []


def runner_with_a_message(app, store, run, send=True):
    app.handler("q")(run)
    if send:
        app.queue("q").send("x")
    (handler,), owner = app.handlers, new_owner()
    exchange = Exchange(store, "q", owner, 15.0, on_dead=lambda move: pytest.fail(f"dead: {move.id}"))
    (message,) = exchange.settle_and_claim(1)
    return Runner(store, handler, exchange, owner), exchange, message


def test_after_a_suspension_a_message_of_others_is_not_started(app, store):
    """The process slept for longer than its lease; a monitor gave the message to others, who have acked it."""
    started: list[reliq.Message] = []
    runner, exchange, message = runner_with_a_message(app, store, started.append)
    consumer = exchange.steps.consumer
    store.call(command("SET", KEYS.lease(consumer), 1))
    Monitor(store).scan()
    exchange.steps.trust.until = Moment.never()
    assert not message.lost
    assert runner.perform(message) is None
    assert message.lost
    assert started == []


@pytest.mark.parametrize("during", ["begin", "renew"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_after_a_suspension_during_its_calls_a_message_of_others_is_not_started(
    app, store, monkeypatch, during, asynchronous
):
    """Found by `make simulate`: the process slept while it read the checkpoint, or while it renewed the lease."""
    started: list[reliq.Message] = []
    app.queue("q").send("x")
    dead = ConsumerSteps(KEYS, new_owner(connected=False), 15.0)
    store.run(dead.claim(1))
    store.call(command("SET", KEYS.lease(dead.consumer), 1))
    Monitor(store).scan()
    runner, exchange, message = runner_with_a_message(app, store, started.append, send=False)
    assert message.was_started
    steps = exchange.steps

    def sleep():
        store.call(command("SET", KEYS.lease(steps.consumer), 1))
        Monitor(store).scan()
        steps.trust.until = Moment.never()

    if during == "begin":
        begin = steps.lives.begin

        def begin_and_sleep(one):
            yield from begin(one)
            sleep()

        monkeypatch.setattr(steps.lives, "begin", begin_and_sleep)
    else:
        monkeypatch.setattr(steps.trust, "renewed", lambda sent_at: sleep())
        steps.trust.until = Moment.never()
    run = asyncio.run(runner.perform_async(message)) if asynchronous else runner.perform(message)
    assert run is None
    assert message.lost
    assert started == []


def test_after_a_suspension_a_message_that_is_still_ours_is_started(app, store):
    started: list[reliq.Message] = []
    runner, exchange, message = runner_with_a_message(app, store, started.append)
    exchange.steps.trust.until = Moment.never()
    assert runner.perform(message) is not None
    assert started == [message]
    assert not exchange.steps.trust.until.passed()


def test_a_message_whose_lease_cannot_be_confirmed_is_handed_back(app, store):
    started: list[reliq.Message] = []
    runner, exchange, message = runner_with_a_message(app, store, started.append)
    store.redirect("redis://127.0.0.1:1/0")
    exchange.steps.trust.until = Moment.never()
    assert runner.perform(message) is None
    assert started == []
    assert [move.destination for move in exchange._moves] == ["tail"]


def test_what_the_watchdog_hands_back_does_not_come_twice_after_a_lost_connection(app, store):
    """It took all that a loop had not started, just when that had asked ahead, and the loop had nothing left to run."""
    _, exchange, message = runner_with_a_message(app, store, lambda message: None)
    exchange.add_unstarted([message])
    exchange.steps.connected(named=True)
    exchange.begin(1)
    assert exchange.wait(1, 0.01) == []
    assert exchange.relieve(store.connection())
    (again,) = exchange.complete()
    assert again.element != message.element
    assert list(exchange.steps.held) == [again.element]


def test_a_loop_does_not_use_its_connection_while_the_watchdog_reads_from_it(app, store, monkeypatch):
    """Each of two threads would get answers to the other's calls."""
    _, exchange, _ = runner_with_a_message(app, store, lambda message: None)
    alone: list[bool] = []

    def run(*_, **__):
        alone.append(exchange._asking.locked())
        return []

    monkeypatch.setattr(store, "run", run)
    exchange.wait(1)
    exchange.claim(1)
    exchange.steps.end_life()
    exchange.ensure_registered()
    assert alone == [True, True, True]


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
def test_a_moment_passes_by_either_clock(monkeypatch, clock):
    moment = Moment.now().after(10)
    assert not moment.passed()
    source = {"monotonic": "monotonic", "wall": "time"}[clock]
    later = getattr(time, source)() + 11
    monkeypatch.setattr(f"reliq.runtime.moment.time.{source}", lambda: later)
    assert moment.passed()


def test_broadcasts_arrive_while_the_first_handler_has_the_turn(app):
    """The instance's queue has a consumer, so that no monitor removes it, before any handler has run."""
    started, release, seen = threading.Event(), threading.Event(), []

    @app.handler("q")
    def first(message):
        started.set()
        release.wait(30)

    @app.broadcast("config.#")
    def reload(message):
        seen.append(message.json())

    app.queue("q").send("keep the turn")
    with working(app):
        assert started.wait(20)
        (instance,) = eventually(lambda: [name for name in app.queues(of_broadcasts=True) if instance_of(name)])
        eventually(lambda: app.store.call(ops.members(QueueKeys(instance).consumers)))
        app.publish("config.prices", 1)
        release.set()
        eventually(lambda: seen == [1])


@pytest.mark.parametrize("kind", ["inline", "threads", "async"])
@pytest.mark.parametrize(
    "total",
    [150, pytest.param(50_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
def test_under_latency_and_killed_connections_nothing_runs_twice_and_nothing_is_stuck(app, redis_server, kind, total):
    """Bodies of 50 KB and a watchdog that acks: the read-back after each lost connection meets acks under way."""
    ran: Counter[str] = Counter()

    def slowly(data):
        time.sleep(0.002)
        return data

    def seconds(message):
        ran[message.id] += 1
        return 0.06 if len(ran) % 10 == 0 else 0.001

    lasting(app, kind, seconds)
    options: dict[str, Any] = {"inline": {}, "threads": {"threads": 40}, "async": {"concurrency": 40}}[kind]
    with (
        connections_killed(redis_server.url),
        Proxy(redis_server.port, reply=slowly) as proxy,
        working(app, url=proxy.url, **options),
    ):
        for first in range(0, total, 500):
            patiently(lambda first=first: app.queue("q").send_many(["x" * 50_000] * min(500, total - first)))
            eventually(lambda: patiently(lambda: app.queue("q").stats().ready < 1000), timeout=120)
        eventually(lambda: patiently(lambda: app.queue("q").stats().counters.get("acked") == total), timeout=120)
    assert [identity for identity, count in ran.items() if count > 1] == []
    assert len(ran) == total


def patiently(call):
    """The connections of the test are killed as well."""
    while True:
        with contextlib.suppress(reliq.RedisUnavailable, reliq.OutcomeUnknown):
            return call()


@contextlib.contextmanager
def connections_killed(url):
    """All connections of a server but one, about seven times a second; less often while nothing is acked meanwhile."""
    stopping = threading.Event()

    def kill():
        store, pause, before = Store(url), 1.0, 0
        with store.borrow() as connection:
            while not stopping.wait(pause * random.uniform(0.05, 0.25)):
                store.call(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), connection)
                acked = int(store.call(command("HGET", KEYS.counters, "acked"), connection) or 0)
                pause = 1.0 if acked > before else 1.2 * pause
                before = acked
        store.close()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        stopping.set()
        killer.join()


@pytest.mark.parametrize("part", ["heartbeat", "watchdog"])
def test_no_error_of_any_kind_ends_what_keeps_a_worker_alive(app, monkeypatch, caplog, part):
    """A thread that ended unnoticed would cost its worker the lease, or leave acks behind a slow handler."""
    calls = []

    def fails_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise RuntimeError("not of reliq")
        return original(*arguments)

    owner, name = (Heartbeat, "beat") if part == "heartbeat" else (Watchdog, "watch")
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, fails_once)
    app.handler("q")(lambda message: None)
    with working(app, lease=1):
        eventually(lambda: len(calls) >= 3)
    assert "not of reliq" in caplog.text
