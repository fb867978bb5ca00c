"""A handler with `once`: what was handled is not handled again, whatever happens to the message."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import reliq
from reliq.errors import InvalidHandler
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store
from tests.support import handlers
from tests.support.handlers import settled, working_as
from tests.support.proxy import Proxy
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


def bind(app, kind, function, **options):
    handlers.bind(app, kind, function, **{"retry": reliq.fixed(0, limit=5), **options})


def test_a_message_sent_again_with_its_id_is_settled_without_running(app, kind):
    handled = []
    bind(app, kind, lambda message: handled.append(message.json()), once=True)
    with working_as(kind, app):
        for body in ("first", "second"):
            app.queue("q").send({"is": body}, id="same")
            app.queue("q").send({"is": body})
            eventually(lambda: settled(app))
    assert sorted(one["is"] for one in handled) == ["first", "first", "second"]
    assert app.queue("q").stats().counters["acked"] == 4


def test_by_a_header_and_by_id_where_there_is_none(app, kind):
    handled = []
    bind(app, kind, lambda message: handled.append(message.body), once="order")
    with working_as(kind, app):
        for body, headers in (
            ("a", {"order": "1"}),
            ("b", {"order": "1"}),
            ("c", {"order": "2"}),
            ("d", {}),
            ("e", {}),
        ):
            app.queue("q").send(body, headers=headers)
            eventually(lambda: settled(app))
    assert handled == [b"a", b"c", b"d", b"e"]


def test_a_failure_and_again_leave_no_mark(app, kind):
    outcomes = iter(["raise", "again", "done"])
    handled = []

    def work(message):
        handled.append(next(outcomes))
        if handled[-1] == "raise":
            raise ValueError("not yet")
        return reliq.Again() if handled[-1] == "again" else None

    bind(app, kind, work, once=True)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    assert handled == ["raise", "again", "done"]


def test_handled_while_the_lease_was_lost_is_not_handled_again(app, client):
    """The monitor returned the message while its handler ran: the settle finds nothing to remove, but marks it."""
    handled, go_on = [], threading.Event()

    def work(message):
        handled.append(message.id)
        go_on.wait(20)

    bind(app, "inline", work, once=True)
    app.queue("q").send("x", id="mine")
    with working(app, monitor=True):
        eventually(lambda: handled)
        (consumer,) = client.smembers(KEYS.consumers)
        client.delete(KEYS.lease(consumer.decode()))
        eventually(lambda: app.queue("q").stats().counters.get("reclaimed") == 1)
        go_on.set()
        eventually(lambda: settled(app))
    assert handled == ["mine"]
    assert app.queue("q").stats().counters["acked"] == 1


def test_a_settle_whose_answers_are_lost_runs_nothing_twice(app, kind, redis_server):
    handled, answers = [], iter(range(1 << 30))
    bind(app, kind, lambda message: handled.append(message.json()), once=True)
    app.queue("q").send_many(range(300))
    with (
        Proxy(redis_server.port, reply=lambda data: None if next(answers) % 20 == 19 else data) as proxy,
        working_as(kind, app, url=proxy.url, monitor=True),
    ):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 300)
    assert sorted(handled) == list(range(300))


def test_the_mark_lasts_for_its_window_and_costs_little(app, client):
    app.handler("q", once=True, once_for="90s")(lambda message: None)
    app.queue("q").send("x", id="mine")
    with working(app):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    mark = KEYS.done("imine")
    assert 80_000 < client.pttl(mark) <= 90_000
    assert client.memory_usage(mark) <= 150


def test_without_once_nothing_is_marked(app, client):
    app.handler("q")(lambda message: None)
    app.queue("q").send("x")
    with working(app):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    assert client.keys("*:done:*") == []


@pytest.mark.parametrize("once", ["", 1, None])
def test_what_is_neither_true_nor_a_header_is_refused(app, once):
    with pytest.raises(InvalidHandler, match="once of 'q'"):
        app.handler("q", once=once)(print)


@pytest.fixture
def impatient(monkeypatch):
    """The worker's calls give up after 0.2 s instead of 5."""
    monkeypatch.setattr("tests.support.workers.Store", functools.partial(Store, timeout=0.2))


def without_marks(redis_server, away):
    """Redis, with every connection cut that asks for a mark while `away` is not empty."""

    def request(data):
        if not (away and b"EXISTS" in data and b":done:" in data):
            return data
        away.append(data)
        return None

    return Proxy(redis_server.port, request=request)


def test_an_outage_during_the_look_up_is_not_the_handlers_failure(app, kind, redis_server, impatient):
    handled: list[int] = []
    away = ["away"]
    bind(app, kind, lambda message: handled.append(message.failures), once=True, retry=lambda failures, error: None)
    app.queue("q").send("x")
    with without_marks(redis_server, away) as proxy, working_as(kind, app, url=proxy.url, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("released"))
        away.clear()
        eventually(lambda: handled)
        eventually(lambda: settled(app))
    stats = app.queue("q").stats()
    assert (handled, stats.dead, stats.counters["acked"], stats.counters.get("retried")) == ([0], 0, 1, None)


def test_the_look_up_does_not_count_towards_the_time_limit(app, kind, redis_server):
    handled: list[reliq.Message] = []
    away = ["away"]
    bind(app, kind, handled.append, once=True, time_limit=0.1, retry=lambda failures, error: None)
    app.queue("q").send("x")
    with without_marks(redis_server, away) as proxy, working_as(kind, app, url=proxy.url, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("released"))
        away.clear()
        eventually(lambda: handled)
        eventually(lambda: settled(app))
    stats = app.queue("q").stats()
    assert (len(handled), stats.dead, stats.counters["acked"]) == (1, 0, 1)


def test_waiting_for_a_thread_to_look_up_is_no_run_beyond_the_time_limit(app, monkeypatch):
    handled: list[str] = []
    free = threading.Event()
    threads = ThreadPoolExecutor(1)
    threads.submit(free.wait)
    monkeypatch.setattr("reliq.worker.threads._threads", threads)
    bind(app, "async", lambda message: handled.append(message.id), once=True, time_limit=0.1, retry=lambda *_: None)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as("async", app, monitor=True):
        counters = eventually(lambda: (found := queue.stats()).dead + found.delayed and found.counters)
        free.set()
        eventually(lambda: settled(app))
    assert (counters.get("released"), handled, queue.stats().dead) == (1, [one], 0)


def test_the_time_limit_of_a_handler_begins_after_the_look_up(app, kind):
    def handle(message):
        runner = worker._loops[0].runner
        for run in runner.running.values():
            run.started -= 3600  # as if the look-up had taken an hour
        runner.end_overdue()

    bind(app, kind, handle, once=True, time_limit=60, retry=lambda failures, error: None)
    with working_as(kind, app) as worker:
        app.queue("q").send("x")
        eventually(lambda: settled(app))
    stats = app.queue("q").stats()
    assert (stats.dead, stats.counters["acked"]) == (0, 1)


def fails_for_new_ones(app, kind, rule):
    """A handler that has handled `known` and fails now; its queue, which has duplicates and new messages."""
    queue, down = app.queue("q"), list[str]()

    def handle(message):
        if down:
            raise ConnectionError("down")

    bind(app, kind, handle, once="order", breaker=rule, retry=reliq.fixed("1h"))
    queue.send("x", headers={"order": "known"})
    with working_as(kind, app):
        eventually(lambda: settled(app))
    down.append("now")
    return queue


def known(queue, count):
    queue.send_many(["x"] * count, headers={"order": "known"})


def test_a_duplicate_that_is_skipped_is_no_run_for_the_breaker(app, kind, client):
    queue = fails_for_new_ones(app, kind, reliq.breaker(threshold=1, minimum=2, window="1h", open_for="1h"))
    client.delete(KEYS.flow)  # the run that has passed
    known(queue, 10)
    queue.send_many(["new", "new"])
    with working_as(kind, app):
        eventually(lambda: queue.stats().counters.get("retried") == 2)
        eventually(lambda: queue.stats().breaker == "open")
    assert queue.stats().counters["acked"] == 11


def test_a_duplicate_that_is_skipped_neither_closes_the_breaker_nor_holds_up_the_next_probe(app, kind, client):
    queue = fails_for_new_ones(app, kind, reliq.breaker(threshold=1, minimum=1, window="1h", open_for="1h"))
    queue.open_breaker("1h")
    client.hset(KEYS.flow, "breaker_until", 1)
    known(queue, 3)
    queue.send("new", id="new")
    with working_as(kind, app):
        eventually(lambda: queue.stats().counters.get("acked") == 4)
        eventually(lambda: queue.stats().counters.get("released") == 1)  # the probe that failed
        eventually(lambda: queue.stats().breaker == "open")
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.counters.get("retried")) == (1, 0, None)
