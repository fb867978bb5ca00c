"""The worker: every message is handled, settled as its handler's outcome says, and never lost on the way."""

import asyncio
import contextlib
import threading
import time
from queue import SimpleQueue

import pytest

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.errors import InvalidSetting
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.protocol.workers import every_worker
from reliq.transport.store import Store
from reliq.worker import Options, Worker
from reliq.worker.assignment import Assignment
from reliq.worker.exchange import Exchange
from reliq.worker.prefetch import MOST
from tests.support.handlers import bind, settled, working_as
from tests.support.proxy import Proxy
from tests.support.workers import aged, eventually, working

KEYS = QueueKeys("q")


def counters(app):
    return app.queue("q").stats().counters


def test_every_message_is_handled_once_and_gone(app, kind):
    handled = []
    bind(app, kind, lambda message: handled.append(message.json()))
    app.queue("q").send_many(range(2000))
    with working_as(kind, app):
        eventually(lambda: len(handled) == 2000)
        eventually(lambda: settled(app))
    assert sorted(handled) == list(range(2000))
    counted = counters(app)
    released = counted.pop("released", 0)  # by a watchdog that did not get on for a while
    assert counted == {"enqueued": 2000, "claimed": 2000 + released, "acked": 2000}
    assert app.queue("q").stats().consumers == 0


def test_one_thread_keeps_the_order(app):
    handled = []
    app.handler("q")(lambda message: handled.append(message.json()))
    app.queue("q").send_many(range(500))
    with working(app):
        eventually(lambda: len(handled) == 500)
    assert handled == list(range(500))


def test_what_arrives_while_the_worker_is_idle_is_handled_at_once(app, kind):
    handled = threading.Event()
    bind(app, kind, lambda message: handled.set())
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().consumers == 1)
        app.queue("q").send("x")
        assert handled.wait(5)
        eventually(lambda: settled(app))


def test_a_failure_is_retried_and_then_dead_with_its_history(app, kind):
    def explode(message):
        raise ValueError(f"boom {message.failures}")

    bind(app, kind, explode, retry=reliq.fixed("20ms", limit=2))
    identity = app.queue("q").send({"order": 1}, headers={"shop": "eu"})
    with working_as(kind, app, monitor=True):
        letter = eventually(lambda: app.queue("q").dead.get(identity))
    assert (letter.reason, letter.failures, letter.json(), letter.headers) == (
        "max_failures", 3, {"order": 1}, {"shop": "eu"},
    )  # fmt: skip
    assert [error.error_class for error in letter.errors] == ["ValueError"] * 3
    assert "boom 0" in letter.first_error.text
    assert "boom 2" in letter.last_error.text


def test_each_outcome_of_a_handler_is_settled(app, kind):
    seen: dict[str, int] = {}

    def decide(message):
        seen[message.json()] = seen.get(message.json(), 0) + 1
        match message.json():
            case "dead":
                raise reliq.Dead("hopeless")
            case "retry":
                raise reliq.Retry(delay="1h")
            case "again" if seen["again"] < 3:
                return reliq.Again()
            case "later":
                return reliq.Again(delay="1h")
            case "exit":
                raise SystemExit(3)
            case "rejected":
                raise LookupError("no such order")
        return "any other return is an ack"

    bind(app, kind, decide, retry=reliq.fixed("2h"), dead_on=LookupError)
    queue = app.queue("q")
    queue.send_many([f'"{name}"' for name in ("dead", "retry", "again", "later", "exit", "rejected", "fine")])
    with working_as(kind, app):
        eventually(lambda: queue.stats().ready == queue.stats().processing == 0)
    assert seen["again"] == 3
    assert {letter.json(): letter.reason for letter in queue.dead.list()} == {
        "dead": "rejected", "rejected": "rejected",
    }  # fmt: skip
    counted = counters(app)
    handed_back = counted.pop("released", 0)  # by the watchdog, where the machine is too busy to start them in time
    assert counted == {
        "enqueued": 7, "claimed": 9 + handed_back, "acked": 2, "requeued": 3, "retried": 2, "dead:rejected": 2,
        "dead_lettered": 2,
    }  # fmt: skip


def test_bytes_that_are_no_element_are_a_dead_letter_and_the_worker_lives_on(app, kind):
    handled = []
    bind(app, kind, lambda message: handled.append(message.body))
    store = Store(app.url)
    store.call(reliq.ops.command("LPUSH", KEYS.messages, b"\xc1 garbage", b"\xc1 garbage", b"{}"))
    app.queue("q").send("fine")
    with working_as(kind, app):
        eventually(lambda: handled == [b"fine"])
        eventually(lambda: settled(app))
    letters = app.queue("q").dead.list()
    assert {letter.reason for letter in letters} == {"decode"}
    assert sorted(letter.body for letter in letters) == [b"{}", b"\xc1 garbage", b"\xc1 garbage"]


def test_an_expired_message_is_a_dead_letter_and_never_starts(app):
    handled = []
    app.handler("q")(lambda message: handled.append(message.body))
    app.queue("q").send("old", ttl="1ms")
    app.queue("q").send("young", ttl="1h")
    aged(app.queue("q"), 0.005)
    with working(app):
        eventually(lambda: handled == [b"young"])
        eventually(lambda: settled(app))
    (letter,) = app.queue("q").dead.list()
    assert (letter.body, letter.reason) == (b"old", "expired")
    assert counters(app)["dead:expired"] == 1


def test_a_handler_beyond_its_time_limit_has_failed_and_its_late_result_is_nothing(app):
    release, told = threading.Event(), []

    @app.handler("q", time_limit="100ms", retry=reliq.fixed("1h"))
    def slow(message):
        release.wait(20)
        told.append(message.lost)

    app.queue("q").send("x")
    with working(app):
        eventually(lambda: app.queue("q").stats().delayed == 1)
        release.set()
        eventually(lambda: told == [True])
    assert counters(app) == {"enqueued": 1, "claimed": 1, "retried": 1}


def test_an_async_handler_beyond_its_time_limit_is_cancelled(app):
    cancelled = threading.Event()

    @app.handler("q", time_limit="100ms", retry=reliq.fixed("1h"))
    async def slow(message):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    app.queue("q").send("x")
    with working(app):
        eventually(lambda: app.queue("q").stats().delayed == 1)
        assert cancelled.wait(5)
    assert counters(app) == {"enqueued": 1, "claimed": 1, "retried": 1}


@pytest.mark.parametrize("threads", [1, 2])
def test_neighbours_of_a_slow_handler_are_handed_back_to_the_others(app, threads):
    """One worker is stuck in a slow handler; what it had claimed besides must run elsewhere meanwhile."""
    release, handled = threading.Event(), []

    def work(message):
        if message.json() == 0:
            release.wait(20)
        handled.append(message.json())

    app.handler("q")(work)
    app.queue("q").send_many([1] * 300)
    with working(app, threads=threads):
        eventually(lambda: len(handled) == 300)  # quick: from now on it claims many at once
        app.queue("q").send_many([0] * threads + [1] * 50)
        eventually(lambda: app.queue("q").stats().processing == threads and app.queue("q").stats().ready == 50)
        with working(app):
            eventually(lambda: len(handled) == 350)
        release.set()
        eventually(lambda: settled(app))
    assert "retried" not in counters(app)


def test_a_batch_that_was_asked_for_ahead_is_handed_back_too(app):
    """The next batch is on its way when a quick handler turns slow."""
    release, handled, total = threading.Event(), [], 3 * MOST

    def work(message):
        if message.body == b"slow":
            release.wait(30)
        handled.append(message.body)

    app.handler("q")(work)
    queue = app.queue("q")
    queue.send_many(["quick"] * 2000)
    with working(app):
        eventually(lambda: len(handled) == 2000)  # from now on it claims as many at once as it may
        queue.pause()
        queue.send_many(["slow", *["quick"] * (total - 1)])
        queue.resume()
        eventually(lambda: (queue.stats().processing, queue.stats().ready) == (1, total - 1))
        with working(app):
            eventually(lambda: len(handled) == 2000 + total - 1)
        release.set()
        eventually(lambda: settled(app))
    assert sorted(handled) == sorted([b"slow", *[b"quick"] * (2000 + total - 1)])


def test_redelivered_messages_run_one_at_a_time_and_are_settled_before_the_next(app, kind):
    """Of these, one may kill the process: the monitor must be able to tell which one was running."""
    running, most = 0, 0
    unsettled: list[bool] = []
    lock = threading.Lock()

    def work(message):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        held = [Message.decode("q", one) for one in store.call(reliq.ops.command("LRANGE", processing(), 0, -1))]
        unsettled.append([one.id for one in held if one.redelivered][-1] == message.id)
        time.sleep(0.002)
        with lock:
            running -= 1

    def processing():
        (consumer,) = store.call(reliq.ops.members(KEYS.consumers))
        return KEYS.processing(consumer)

    bind(app, kind, work)
    store = Store(app.url)
    ids = app.queue("q").send_many(range(12))
    elements = store.call(reliq.ops.command("LRANGE", KEYS.messages, 0, -1))
    store.call(reliq.ops.command("DEL", KEYS.messages))
    again = [Message.decode("q", one).again(redelivered=True) for one in elements]
    store.call(reliq.ops.command("RPUSH", KEYS.messages, *again))
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app), timeout=40)
    assert len(unsettled) == len(ids)
    assert most == 1
    assert all(unsettled), "the one that runs must be the oldest redelivered one of its list"


def test_a_paused_queue_starts_nothing_though_a_worker_waits(app, kind):
    handled = []
    bind(app, kind, lambda message: handled.append(message.body))
    queue = app.queue("q")
    with working_as(kind, app):
        eventually(lambda: queue.stats().consumers == 1)
        queue.pause()
        queue.send("x")
        eventually(lambda: counters(app).get("released", 0) or queue.stats().ready == 1)
        eventually(lambda: queue.stats().ready == 1 and queue.stats().processing == 0)
        assert handled == []
        queue.resume()
        eventually(lambda: handled == [b"x"])
        eventually(lambda: settled(app))


def test_the_dead_hook_is_called_in_the_worker_that_killed_the_message(app, kind):
    told = []
    app.on_dead("q")(lambda message: told.append((message.id, message.reason)))
    app.on_dead("other")(lambda message: told.append(("wrong queue", message.id)))

    @app.on_dead()
    def broken(message):
        raise RuntimeError("the hook's own trouble")

    def die(message):
        raise reliq.Dead("no")

    bind(app, kind, die)
    expired = app.queue("q").send("x", ttl="1ms")
    aged(app.queue("q"), 0.005)
    identity = app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: sorted(told) == sorted([(identity, "rejected"), (expired, "expired")]))


def test_a_stopping_worker_finishes_what_runs_and_hands_back_the_rest_uncharged(app, kind):
    started, release, handled = threading.Event(), threading.Event(), []

    def work(message):
        started.set()
        release.wait(20)
        time.sleep(0.01)  # so that there is a rest when the worker notices
        handled.append(message.json())

    app.handler("q")(work)
    app.queue("q").send_many(range(500))
    worker = Worker(Store(app.url), app.handlers, Options(threads=1 if kind == "inline" else 3))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert started.wait(20)
    worker.stop()
    release.set()
    thread.join(20)
    assert not thread.is_alive()
    stats = app.queue("q").stats()
    assert 1 <= len(handled) < 500
    assert stats.ready == 500 - len(handled)
    assert (stats.processing, stats.consumers, stats.counters["acked"]) == (0, 0, len(handled))
    with app.queue("q").consumer() as consumer:
        left = consumer.claim(limit=500)
    assert all((one.failures, one.deliveries, one.redelivered) == (0, 0, False) for one in left)


@pytest.mark.parametrize("stops", [1, 2], ids=["grace is over", "second signal"])
def test_what_does_not_finish_is_handed_back(app, kind, stops):
    release = threading.Event()
    app.handler("q")(lambda message: release.wait(20))
    app.queue("q").send_many(range(3))
    grace = 0.2 if stops == 1 else 60
    worker = Worker(Store(app.url), app.handlers, Options(grace=grace, threads=1 if kind == "inline" else 3))
    thread = threading.Thread(target=worker.run)
    thread.start()
    eventually(lambda: app.queue("q").stats().processing >= 1)
    for _ in range(stops):
        worker.stop()
    thread.join(10)
    assert not thread.is_alive()
    stats = app.queue("q").stats()
    assert (stats.ready, stats.processing, stats.consumers) == (3, 0, 0)
    assert app.store.run(every_worker()) == []
    release.set()
    eventually(lambda: not worker._running)
    assert app.queue("q").stats().consumers == 0


def test_the_end_of_the_grace_is_told_of_the_queue_whose_handler_runs(app, caplog):
    """With one thread, the loop of the other queue waits its turn."""
    running: SimpleQueue[str] = SimpleQueue()
    release = threading.Event()

    def work(message):
        running.put(message.queue)
        release.wait(20)

    ids = {}
    for name in ("orders", "reports"):
        app.handler(name)(work)
        ids[name] = app.queue(name).send("x")
    worker = Worker(Store(app.url), app.handlers, Options(grace=0.2))
    thread = threading.Thread(target=worker.run)
    thread.start()
    name = running.get(timeout=20)
    worker.stop()
    thread.join(20)
    release.set()
    assert not thread.is_alive()
    told = [one for one in caplog.messages if "grace_over" in one]
    cut_off = f"messages=1 ids={ids[name]}"
    assert told == [f"grace_over queue={name} {cut_off}: releases the messages whose handlers still run"]


def test_the_end_of_the_grace_names_the_first_ten_messages_that_it_cuts_off(app, caplog):
    async def work(message):
        await asyncio.sleep(60)

    app.handler("q")(work)
    ids = app.queue("q").send_many(range(12))
    worker = Worker(Store(app.url), app.handlers, Options(grace=0))
    thread = threading.Thread(target=worker.run)
    thread.start()
    eventually(lambda: len(worker._loops[0].runner.running) == 12)
    worker.stop()
    thread.join(20)
    assert not thread.is_alive()
    (told,) = [one for one in caplog.messages if "grace_over" in one]
    named = told.partition(" ids=")[2].partition(":")[0].split(",")
    assert "messages=12 " in told
    assert (len(set(named[:10]) & set(ids)), named[10:]) == (10, ["..."])


def test_a_worker_whose_redis_is_away_ends_though_it_has_many_queues(caplog, monkeypatch):
    """Each queue waited for Redis in its turn: a worker of twenty went on for minutes after its grace."""
    release, running, tried = threading.Event(), [], []
    hand_back = Exchange.hand_back

    def work(message):
        running.append(message)
        release.wait(60)

    def try_it(exchange, *given):
        tried.append(exchange)
        hand_back(exchange, *given)

    monkeypatch.setattr(Exchange, "hand_back", try_it)
    with EmbeddedRedis() as server, contextlib.closing(reliq.Reliq(server.url)) as app:
        for name in ("a", "b", "c"):
            app.handler(name)(work)
            app.queue(name).send("x")
        worker = Worker(Store(server.url, timeout=0.2), app.handlers, Options(grace=0, threads=3))
        thread = threading.Thread(target=worker.run)
        thread.start()
        eventually(lambda: len(running) == 3)
        server.stop()
        worker.stop()
        thread.join(60)
        release.set()
        assert not thread.is_alive()
    assert len(tried) == 1
    told = [one.split()[1] for one in caplog.messages if one.startswith("not_handed_back")]
    assert sorted(told) == ["queue=a", "queue=b", "queue=c"]


def test_a_worker_that_is_to_stop_asks_about_no_further_queue(app, monkeypatch):
    """With a Redis that does not answer, each question takes four seconds."""
    looked = []

    def look(assignment, taken_at):
        looked.append(assignment.queue)
        worker.stop()
        yield from ()

    monkeypatch.setattr(Assignment, "look", look)
    for name in ("a", "b", "c"):
        app.handler(name)(lambda message: None)
    worker = Worker(Store(app.url), app.handlers, Options())
    assert worker.run() == 0
    assert looked == ["a"]


def test_a_lost_lease_tells_the_handler_and_its_result_is_nothing(app):
    running: SimpleQueue[reliq.Message] = SimpleQueue()
    release, told = threading.Event(), []

    @app.handler("q")
    def work(message):
        running.put(message)
        release.wait(30)
        told.append(message.lost)

    app.queue("q").send("x")
    store = Store(app.url)
    with working(app, lease=1.0):
        message = running.get(timeout=20)
        assert not message.lost
        (consumer,) = store.call(reliq.ops.members(KEYS.consumers))
        store.call(reliq.ops.command("DEL", KEYS.lease(consumer), KEYS.processing(consumer)))  # as a reclaim would
        eventually(lambda: message.lost)
        release.set()
        eventually(lambda: told == [True])
    assert "acked" not in counters(app)


def test_a_reply_that_is_lost_loses_no_message(app, redis_server, kind):
    """Every tenth answer to the worker never comes; what was moved by such a call is read back."""
    handled = []
    bind(app, kind, lambda message: handled.append(message.json()))
    count = 0

    def cut_every_tenth(data):
        nonlocal count
        count += 1
        return None if count % 10 == 0 else data

    app.queue("q").send_many(range(300))
    with Proxy(redis_server.port, reply=cut_every_tenth) as proxy, working_as(kind, app, url=proxy.url):
        eventually(lambda: settled(app), timeout=60)
    assert sorted(set(handled)) == list(range(300))
    assert counters(app)["acked"] == 300
    assert len(handled) == 300, "a settle that is repeated runs nothing twice"


def test_a_reply_that_is_lost_loses_none_of_what_was_asked_for_ahead(app, redis_server):
    """Up to four batches are about at once: one runs, the answers to three are under way."""
    handled, count = [], 0
    app.handler("q")(lambda message: handled.append(message.json()))

    def cut_every_twelfth(data):
        nonlocal count
        count += 1
        return None if count % 12 == 0 else data

    total = 40 * MOST
    app.queue("q").send_many(range(total))
    with Proxy(redis_server.port, reply=cut_every_twelfth) as proxy, working(app, url=proxy.url):
        eventually(lambda: settled(app), timeout=120)
    assert sorted(handled) == list(range(total)), "nothing is lost, and nothing runs twice"
    assert counters(app)["acked"] == total


def test_what_has_expired_dies_while_batches_are_under_way(app):
    handled = []
    app.handler("q")(lambda message: handled.append(message.json()))
    queue = app.queue("q")
    queue.send_many([reliq.NewMessage(number, ttl=0.001 if number % 100 == 7 else None) for number in range(5000)])
    with working(app):
        eventually(lambda: settled(app))
    stats = queue.stats()
    assert (len(handled), stats.dead, stats.counters["dead:expired"]) == (4950, 50, 50)


def test_an_application_without_handlers_says_so(app):
    with pytest.raises(InvalidSetting, match="no handlers"):
        Worker(Store(app.url), app.handlers, Options())


@pytest.mark.parametrize("bad", [{"threads": 0}, {"threads": 2.5}, {"concurrency": 0}, {"lease": 0.1}, {"grace": -1}])
def test_bad_options_are_refused(bad):
    with pytest.raises(InvalidSetting):
        Options(**bad)


class Rude(Exception):
    def __str__(self):
        raise SystemExit("even its text is an exit")


@pytest.mark.parametrize("rudeness", ["Dead of an object", "back-off exits", "hook exits", "error without text"])
def test_no_exception_of_the_application_ends_the_worker(app, kind, rudeness):
    def backoff(failures, error):
        if rudeness == "back-off exits":
            raise SystemExit
        return 0 if failures < 2 else None

    @app.on_dead("q")
    def hook(message):
        if rudeness == "hook exits":
            raise SystemExit

    def work(message):
        if message.body == b"fine":
            return
        if rudeness == "error without text":
            raise Rude
        raise (
            reliq.Dead(Rude() if rudeness == "Dead of an object" else "no")
            if "back-off" not in rudeness
            else ValueError
        )

    bind(app, kind, work, retry=backoff)
    app.queue("q").send_many(["bad", "fine", "fine"])
    with working_as(kind, app):
        eventually(lambda: counters(app).get("acked") == 2)
        eventually(lambda: app.queue("q").stats().dead + app.queue("q").stats().delayed == 1)
        app.queue("q").send("fine")
        eventually(lambda: counters(app).get("acked") == 3)


@pytest.mark.parametrize("kind", ["threads", "async"])
def test_a_message_that_was_charged_with_a_death_runs_alone(app, kind):
    """Else the death of a message beside it would be charged to it too, until it is dead."""
    suspects = {f"suspect-{number}" for number in range(3)}
    running: set[str] = set()
    beside: dict[str, set[str]] = {}

    def begins(message) -> None:
        running.add(message.id)
        for one in running:
            beside.setdefault(one, set()).update(running - {one})

    def work(message) -> None:
        begins(message)
        time.sleep(0.03)
        running.remove(message.id)

    async def work_async(message) -> None:
        begins(message)
        await asyncio.sleep(0.03)
        running.remove(message.id)

    queue, keys = app.queue("q"), QueueKeys("q")
    ids = queue.send_many([b"x"] * 40)
    for place, identity in enumerate(sorted(suspects)):
        message = Message.decode("q", NewMessage(b"x", id=identity).element(0))
        element = message.again(redelivered=True, deliveries=1)
        queue.send_many([b"x"] * 5)
        end = "LPUSH" if place else "RPUSH"
        app.store.call(ops.command(end, keys.messages, element))
    app.handler("q")(work if kind == "threads" else work_async)
    with working(app, monitor=True, threads=8):
        eventually(lambda: len(beside) == 58)  # one that cannot start at once is put back for a moment
    assert {one: others for one, others in beside.items() if one in suspects and others} == {}
    assert suspects <= beside.keys()
    assert any(beside[one] for one in ids)


def test_a_worker_whose_redis_was_emptied_does_not_say_that_its_messages_are_back(app, caplog):
    release, began = threading.Event(), threading.Event()

    @app.handler("orders")
    def handle(_):
        began.set()
        release.wait(30)

    app.queue("orders").send("x")
    with working(app, lease=1.0):
        assert began.wait(30)
        app.store.call(ops.command("FLUSHALL"))
        eventually(lambda: "lease_lost queue=orders" in caplog.text)
        release.set()
    (said,) = [line for line in caplog.messages if "lease_lost" in line]
    assert "or Redis has lost its data" in said
