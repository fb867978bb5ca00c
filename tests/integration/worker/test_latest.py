"""Latest wins under real workers: few runs for many sends, and the last send always has a run, as the last one."""

import contextlib
import threading

import pytest

import reliq
from reliq.model.keys import QueueKeys
from tests.support.handlers import bind, settled, working_as
from tests.support.workers import ROOT, eventually, process

BURST = 1000


@pytest.mark.parametrize("way", ["one by one", "in one call"])
def test_a_burst_while_one_runs_has_two_runs_and_the_last_body_is_last(app, kind, way):
    queue, runs, started, go_on = app.queue("q"), [], threading.Event(), threading.Event()

    def handle(message):
        runs.append(message.body)
        started.set()
        assert go_on.wait(60)

    bind(app, kind, handle)
    with working_as(kind, app):
        queue.send("first", dedup_key="k", replace=True)
        assert started.wait(30)
        if way == "one by one":
            for number in range(BURST):
                queue.send(str(number), dedup_key="k", replace=True)
        else:
            queue.send_many([reliq.NewMessage(str(number), dedup_key="k", replace=True) for number in range(BURST)])
        go_on.set()
        eventually(lambda: settled(app) and len(runs) > 1)
    assert runs == [b"first", str(BURST - 1).encode()]
    assert queue.stats().counters["replaced"] == BURST - 1


@pytest.mark.parametrize("size", [4, 4000], ids=["in the element", "apart"])
def test_a_burst_before_the_worker_starts_has_one_run(app, kind, size, client):
    queue, runs = app.queue("q"), []
    bind(app, kind, lambda message: runs.append(message.body))
    for number in range(BURST):
        queue.send(str(number).zfill(size), dedup_key="k", replace=True)
    with working_as(kind, app):
        eventually(lambda: settled(app) and runs)
    assert runs == [str(BURST - 1).zfill(size).encode()]
    assert client.exists("reliq:{q}:bodies", "reliq:{q}:active", "reliq:{q}:waiting") == 0


def test_a_debounced_burst_has_one_run_or_two_and_the_last_body_is_last(app, kind):
    queue, runs = app.queue("q"), []
    bind(app, kind, lambda message: runs.append(message.body))
    with working_as(kind, app, monitor=True):
        for number in range(BURST):
            queue.send(str(number), dedup_key="k", replace=True, debounce="1s", at_most="1m")
        eventually(lambda: settled(app) and runs)
    assert len(runs) <= 2
    assert runs[-1] == str(BURST - 1).encode()
    counters = queue.stats().counters
    assert counters["replaced"] == BURST - len(runs)


def test_what_was_reported_about_a_message_is_deleted_when_a_newer_one_takes_its_place(app, client):
    queue = app.queue("q")
    older = queue.send("1", dedup_key="k", replace=True)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.checkpoint({"page": 1})
        consumer.retry(message)
        assert client.exists(QueueKeys("q").report(older))
        queue.send("2", dedup_key="k", replace=True)
        assert [one.body for one in consumer.claim()] == [b"2"]
    assert not client.exists(QueueKeys("q").report(older))


def test_at_most_gives_a_run_although_new_ones_keep_coming(app):
    queue, runs, number = app.queue("q"), [], 0
    bind(app, "inline", lambda message: runs.append(int(message.body)))
    with working_as("inline", app, monitor=True):
        while len(runs) < 2:
            number += 1
            queue.send(str(number), dedup_key="k", replace=True, debounce="300ms", at_most="400ms")
            assert number < 100_000
    assert runs == sorted(runs)
    assert queue.stats().counters["replaced"] > 0


def test_two_producers_and_two_workers_race(app, url, kind):
    queue, runs, lock = app.queue("q"), [], threading.Lock()
    running: set[str] = set()

    def handle(message):
        with lock:
            assert not running, "two messages of the key at a time"
            running.add(message.id)
            runs.append(message.body.decode())
        with lock:
            running.discard(message.id)

    bind(app, kind, handle)

    def produce(name):
        with reliq.Reliq(url) as own:
            for number in range(BURST):
                own.queue("q").send(f"{name}{number:04}", dedup_key="k", replace=True)

    with working_as(kind, app), working_as(kind, app):
        producers = [threading.Thread(target=produce, args=[name]) for name in "ab"]
        for one in producers:
            one.start()
        for one in producers:
            one.join()
        eventually(lambda: settled(app))
    stats = queue.stats()
    assert runs[-1] in {f"a{BURST - 1:04}", f"b{BURST - 1:04}"}
    for name in "ab":
        own_runs = [one for one in runs if one.startswith(name)]
        assert own_runs == sorted(own_runs)
    assert len(runs) == stats.counters["acked"] == 2 * BURST - stats.counters["replaced"]
    assert (stats.dead, stats.counters.get("retried", 0)) == (0, 0)


def test_a_retry_takes_the_newest_body(app, kind):
    queue, runs, failing = app.queue("q"), [], threading.Event()

    def handle(message):
        runs.append(message.body)
        if message.body == b"bad":
            failing.set()
            raise ValueError("bad")

    bind(app, kind, handle, retry=reliq.fixed(0.5, limit=5))
    with working_as(kind, app, monitor=True):
        queue.send("bad", dedup_key="k", replace=True)
        assert failing.wait(30)
        queue.send("good", dedup_key="k", replace=True)
        eventually(lambda: settled(app) and b"good" in runs)
    assert runs == [b"bad", b"good"]
    assert queue.stats().dead == 0


def test_a_worker_killed_while_one_runs_and_one_waits(app, url, client):
    queue = app.queue("q")
    with contextlib.ExitStack() as stack:
        stack.enter_context(process("monitor", "--url", url, "--quiet"))

        def start():
            arguments = ("worker", "tests.integration.worker.latest_app:app", "--url", url, "--quiet", "--no-monitor")
            return stack.enter_context(process(*arguments, folder=ROOT, RELIQ_URL=url))

        worker = start()
        queue.send("running", dedup_key="k", replace=True)
        eventually(lambda: client.lrange("started", 0, -1) == [b"running"])
        queue.send("older", dedup_key="k", replace=True)
        queue.send("last", dedup_key="k", replace=True)
        worker.kill()
        worker.wait()
        client.set("go on", 1)
        start()
        eventually(lambda: b"last" in client.lrange("ended", 0, -1))
        eventually(lambda: settled(app))
    assert client.lrange("started", 0, -1) == [b"running", b"last"]
    assert client.lrange("ended", 0, -1) == [b"last"]
    counters = queue.stats().counters
    assert (counters["reclaimed"], counters["replaced"], counters["acked"]) == (1, 2, 1)
