"""Workers have names: who they are and what they run is in Redis, and is shown by every surface."""

import json
import os
import socket
import threading
import time

import pytest

import reliq
from reliq import __version__, ops
from reliq.cli import top
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.worker import Doing, Process, read
from reliq.observability.worker_metrics import WorkerCollector
from reliq.protocol.workers import every_worker
from reliq.runtime import process
from reliq.worker.news import News
from tests.support.commands import run
from tests.support.workers import eventually, working


@pytest.fixture
def at_work(app, monkeypatch):
    """A worker named "the shop" that runs a message of `orders`: the id of that."""
    monkeypatch.setattr(process, "_this", None)
    monkeypatch.setattr(process, "_named", "the shop")
    done = threading.Event()

    @app.handler("orders")
    def work(message: reliq.Message) -> None:
        done.wait()

    app.handler("mails")(print)
    identity = app.queue("orders").send("x")
    with working(app, lease=1, threads=2):
        eventually(lambda: [one for one in app.store.run(every_worker()) if one.running])
        yield identity
        done.set()


def test_a_worker_says_who_it_is_and_what_it_runs(app, at_work):
    (one,) = app.store.run(every_worker())
    assert (one.process.host, one.process.pid) == (socket.gethostname(), os.getpid())
    assert (one.process.title, one.process.version) == ("the shop", __version__)
    assert (one.queues, one.processing) == (["mails", "orders"], 1)
    assert (one.running.queue, one.running.doing.running) == ("orders", at_work)
    now = time.time() * 1000
    assert now - 20_000 < one.process.started <= one.running.doing.since <= now
    assert now - 2_000 < one.beat <= now + 100


def test_a_worker_that_has_left_is_not_there_any_more(app):
    app.handler("orders")(print)
    with working(app):
        eventually(lambda: app.store.run(every_worker()))
    assert app.store.run(every_worker()) == []
    assert app.store.call(ops.described(QueueKeys("orders"))) == []


def test_a_worker_of_an_earlier_version_is_listed_without_a_name(app, at_work):
    earlier = new_owner()
    app.store.call(ops.register(QueueKeys("orders"), earlier, 15.0))
    named, unnamed = app.store.run(every_worker())
    assert (named.process.title, unnamed.process, unnamed.id) == ("the shop", None, earlier)
    lines = run("workers", url=app.url).stdout.splitlines()[1:]
    assert [line.split()[1] for line in lines] == [socket.gethostname(), "-"]


def test_the_command_line_lists_the_workers(app, at_work):
    head, line = run("workers", url=app.url).stdout.splitlines()
    assert head.split()[:6] == ["worker", "host", "pid", "title", "version", "up"]
    assert f"{socket.gethostname()} " in line
    assert f" {os.getpid()} the shop {__version__} " in line
    assert f" mails,orders; {at_work} for " in line
    (one,) = json.loads(run("workers", "--json", url=app.url).stdout)
    assert list(one) == [
        "id", "host", "pid", "title", "started", "version", "queues", "processing", "messages_per_second",
        "last_heartbeat", "running",
    ]  # fmt: skip
    assert (one["pid"], one["running"]["id"]) == (os.getpid(), at_work)


def test_without_workers_the_command_line_says_so(app):
    done = run("workers", url=app.url)
    assert (done.stdout, done.stderr) == ("", "there are no workers: `reliq worker MODULE:APP` starts one\n")


def test_top_shows_the_workers_below_the_queues(app, at_work):
    look = top.look(app.store)
    lines = top.frame(look, look, "here", 24, 160)
    assert lines[-1].startswith(f"{socket.gethostname()} {os.getpid()}")
    assert "the shop" in lines[-1]
    assert at_work in lines[-1]


def test_a_monitor_exports_the_workers(app, at_work):
    info, rate = WorkerCollector(app.store).collect()
    (sample,) = info.samples
    labels = {"host": socket.gethostname(), "pid": str(os.getpid()), "title": "the shop", "version": __version__}
    assert labels.items() <= sample.labels.items()
    assert [one.labels["worker"] for one in rate.samples] == [sample.labels["worker"]]


def test_nothing_is_told_twice(monkeypatch):
    monkeypatch.setattr(time, "monotonic", iter([0.0, 5.0, 10.0, 15.0, 20.0]).__next__)
    news = News(15.0)
    told = [news.text(handled, "", 0) for handled in (10, 10, 10, 30)]
    rates = [one and json.loads(one)["rate"] for one in told]
    assert rates == [2.0, 0.0, None, 4.0]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"nonsense", b"{}", b'{"host": 1, "pid": "x", "since": -1, "rate": "fast"}', b'{"pid": 1e400}', None],
)
def test_what_another_program_wrote_says_nothing(text):
    one = read("orders", "c1", text, None, 0)
    assert one.process in (None, Process("", 0, "", 0, ""))
    assert (one.doing, one.beat) == (Doing(), None)
