"""Workers have names: who they are and what they run is in Redis, and is shown by every surface."""

import json
import logging
import os
import re
import shutil
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest

import reliq
from reliq import __version__, ops
from reliq.cli import top
from reliq.model.instruction import Instruction, latest
from reliq.model.keys import QueueKeys, new_owner, process_of
from reliq.model.worker import NO_WORKER, Doing, Process, encoded, read
from reliq.observability.worker_metrics import WorkerCollector
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.workers import every_worker, instruct
from reliq.runtime import process
from reliq.spark.claims import Claims
from reliq.worker.description import Description
from tests.integration.api.serving import serving
from tests.support.commands import run
from tests.support.turns import Monitor
from tests.support.workers import ROOT, eventually, working
from tests.support.workers import process as running


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
    assert one.running.doing.since <= now
    assert now - 20_000 < one.process.started <= one.running.doing.since + 1000  # as exactly as the system counts
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
        "last_heartbeat", "paused", "running",
    ]  # fmt: skip
    assert (one["pid"], one["running"]["id"]) == (os.getpid(), at_work)


def test_a_lease_over_http_says_whose_it_is(app):
    app.queue("orders").send("x")
    with serving(app.url) as client:
        assert client.post("/v1/queues/orders/leases", json={"lease": 30}).json()["lease"]
        (one,) = app.store.run(every_worker())
    assert (one.process.host, one.process.title) == (socket.gethostname(), "HTTP lease of 127.0.0.1")


def test_a_batch_of_spark_says_of_which_stream_it_is(app):
    app.queue("orders").send("x")
    app.store.run(Claims(QueueKeys("orders"), 30.0).claim("clicks", 1, 10))
    (one,) = app.store.run(every_worker())
    assert (one.process.pid, one.process.title) == (os.getpid(), "Spark stream clicks")


def test_without_workers_the_command_line_says_so(app):
    done = run("workers", url=app.url)
    assert (done.stdout, done.stderr) == ("", "there are no workers: `reliq worker MODULE:APP` starts one\n")


def test_top_shows_the_workers_below_the_queues(app, at_work):
    look = top.look(app.store)
    lines = top.frame(look, look, "here", 24, 160)
    (worker,) = app.store.run(every_worker())
    assert lines[-2].startswith(f"{worker.id[:8]} {socket.gethostname()} {os.getpid()}")
    assert "the shop" in lines[-2]
    assert lines[-1].startswith(f"  {at_work} for ")


def test_a_monitor_exports_the_workers(app, at_work):
    info, rate = WorkerCollector(app.store).collect()
    (sample,) = info.samples
    labels = {"host": socket.gethostname(), "pid": str(os.getpid()), "title": "the shop", "version": __version__}
    assert labels.items() <= sample.labels.items()
    assert [one.labels["worker"] for one in rate.samples] == [sample.labels["worker"]]


def test_the_monitor_names_the_process_whose_messages_it_takes_back(app, caplog):
    caplog.set_level(logging.INFO, logger="reliq.monitor")
    keys = QueueKeys("orders")
    app.queue("orders").send_many(["x", "y"])
    for owner, about in (("ha", encoded(Process("vm-7", 42, "the shop", 1, "1.2.3"), 15.0)), ("hb", None)):
        app.store.call(ops.register(keys, owner, 15.0, about=about))
        app.store.call(ops.claim(keys, owner, 15.0, 1))
        app.store.call(ops.end(keys, owner))
    Monitor(app.store).scan()
    text = " ".join(record.getMessage() for record in caplog.records if "reclaimed=" in record.getMessage())
    assert "vm-7:42" in text
    assert "hb" in text


def seen(app):
    (one,) = app.store.run(every_worker())
    return one


@pytest.mark.parametrize("threads", [1, 4])
def test_a_paused_worker_finishes_what_runs_hands_back_the_rest_and_claims_nothing_until_it_is_resumed(app, threads):
    started, go_on, ran = threading.Event(), threading.Event(), []
    queue = app.queue("orders")

    @app.handler("orders")
    def work(message: reliq.Message) -> None:
        started.set()
        go_on.wait()
        ran.append(message.id)

    sent = queue.send_many(range(20))
    with working(app, lease=1, threads=threads):
        assert started.wait(20)
        one = seen(app)
        assert app.store.run(instruct(one, Instruction.PAUSE))
        eventually(lambda: seen(app).paused)
        go_on.set()
        eventually(lambda: queue.stats().processing == 0)
        assert 1 <= len(ran) <= threads
        assert queue.stats().ready == 20 - len(ran)
        later = queue.send("later", priority="high")
        eventually(lambda: seen(app).beat > one.beat + 1000)  # it renews its lease, and runs nothing
        assert (later in ran, queue.stats().ready) == (False, 21 - len(ran))
        app.store.run(instruct(seen(app), Instruction.RESUME))
        eventually(lambda: sorted(ran) == sorted([*sent, later]))
        eventually(lambda: not seen(app).paused)
    assert not queue.stats().counters.get("reclaimed")


def test_a_worker_that_is_told_to_stop_shuts_down_cleanly(app):
    app.handler("orders")(print)
    with working(app, lease=1) as worker:
        eventually(lambda: app.store.run(every_worker()))
        app.store.run(instruct(seen(app), Instruction.STOP))
        eventually(lambda: app.store.run(every_worker()) == [])
        assert worker.told_to_stop


def two(app):
    """Return both workers: while partitions change hands, one may have none for a moment."""
    return eventually(lambda: len(found := app.store.run(every_worker())) == 2 and found)


def test_a_child_that_is_told_to_stop_is_not_replaced_and_the_last_one_ends_its_parent(app, tmp_path):
    (tmp_path / "shop.py").write_text("import reliq\napp = reliq.Reliq()\napp.handler('orders')(print)\n")
    arguments = ("worker", "shop", "--processes", "2", "--lease", "1")
    with running(*arguments, folder=tmp_path, RELIQ_URL=app.url) as parent:
        first, second = two(app)
        app.store.run(instruct(first, Instruction.STOP))
        eventually(lambda: [one.id for one in app.store.run(every_worker())] == [second.id])
        assert parent.poll() is None
        app.store.run(instruct(second, Instruction.STOP))
        assert parent.wait(20) == 0
        assert b"died" not in parent.stderr.read()


def test_an_instruction_waits_in_each_partition_that_the_worker_may_serve_by_then(app):
    app.queue("orders").configure(partitions=2)
    homes = [QueueKeys(name) for name in app.store.call(ops.layout(QueueKeys("orders"))).every("orders")]
    steps = ConsumerSteps(homes[0], new_owner(), 15.0, doing=Doing())
    app.store.run(steps.ensure_registered())
    (one,) = app.store.run(every_worker())
    assert app.store.run(instruct(one, Instruction.PAUSE))
    told = [app.store.call(ops.command("HKEYS", keys.told)) for keys in homes]
    assert told == [[Instruction.PAUSE.field(process_of(one.id)).encode()]] * 2
    app.store.run(steps.leave())
    assert not app.store.run(instruct(one, Instruction.RESUME))


def test_the_others_take_the_partitions_of_a_paused_worker(app):
    queue, ran = app.queue("orders"), []
    queue.configure(partitions=4)
    app.handler("orders")(lambda message: ran.append(message.id))
    with working(app, lease=1), working(app, lease=1):
        first = eventually(lambda: (one := two(app)[0]) and app.store.run(instruct(one, Instruction.PAUSE)) and one)
        eventually(lambda: [one.paused for one in app.store.run(every_worker()) if one.id == first.id] == [True])
        sent = queue.send_many(range(40))
        eventually(lambda: sorted(ran) == sorted(sent))


def test_the_latest_instruction_counts_and_that_to_another_process_does_not():
    told = ((" pause me", 5), (" resume me", 7), (" stop other", 9), ("a-message", 8))
    assert latest(told, "me") == (7, Instruction.RESUME)
    assert latest(told, "nobody") is None
    assert latest((), "me") is None


def test_the_command_line_pauses_resumes_and_stops_a_worker_by_the_beginning_of_its_id(app, at_work):
    one = seen(app)
    for verb, paused in (("pause", True), ("resume", False)):
        done = run("worker", verb, one.id[:8], url=app.url)
        assert done.stdout.startswith(f"told worker {one.id} to {verb}: it does so with its next heartbeat")
        eventually(lambda: seen(app).paused is paused)  # noqa: B023  it ends before the next one
        assert ("; paused" in run("worker", "list", url=app.url).stdout) is paused
    assert json.loads(run("worker", "pause", one.id, "--json", url=app.url).stdout) == {"id": one.id, "told": "pause"}
    app.queue("by-hand").send("x")
    with app.queue("by-hand").consumer() as consumer:
        consumer.claim()
        (held,) = [one.id for one in app.store.run(every_worker()) if one.queues == ["by-hand"]]
        by_hand = run("worker", "stop", held, url=app.url)
    assert by_hand.returncode == 1
    assert by_hand.stderr == f"reliq: {held} is not a worker; {NO_WORKER}\n"
    missing = run("worker", "stop", "c-unknown", url=app.url)
    assert (missing.returncode, missing.stderr) == (
        1,
        "reliq: there is no worker 'c-unknown': `reliq worker list` shows all of them\n",
    )


@pytest.mark.parametrize("ahead", [3600, -3600])
@pytest.mark.parametrize("command", ["worker list", "top --once --interval 0.1"])
def test_ages_of_workers_go_by_the_clock_of_redis(app, at_work, monkeypatch, command, ahead):
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)

    about = re.compile(rf" {re.escape(__version__)} +(?:up +)?(\d\S*) +(?:beat +)?(\d\S*) ")

    def ages():
        return about.findall(run(*command.split(), url=app.url).stdout)[0]

    up, beat = eventually(lambda: (found := ages())[0] != "0.0s" and found)
    assert up.endswith("s")
    assert beat.endswith("s")


def test_nothing_is_told_twice(monkeypatch):
    clock = SimpleNamespace(monotonic=iter([0.0, 5.0, 10.0, 15.0, 20.0]).__next__)
    monkeypatch.setattr("reliq.worker.description.time", clock)
    description = Description(15.0)
    texts = [description.changed(handled, "", 0) for handled in (10, 10, 10, 30)]
    rates = [one and json.loads(one)["rate"] for one in texts]
    assert rates == [2.0, 0.0, None, 4.0]


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"nonsense", b"{}", b'{"host": 1, "pid": "x", "since": -1, "rate": "fast"}', b'{"pid": 1e400}', None],
)
def test_what_another_program_wrote_says_nothing(text):
    one = read("orders", "c1", text, None, 0)
    assert one.process in (None, Process("", 0, "", 0, ""))
    assert (one.doing, one.beat) == (Doing(), None)


def test_a_parent_returns_what_a_killed_child_held_when_its_files_have_been_replaced(app, tmp_path):
    """As by `pip install`: it has what it needs for that in memory from its start on. No monitor runs here."""
    for source in (ROOT / "reliq", ROOT / "monitor" / "reliq_monitor"):
        shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "shop.py").write_text(
        "import reliq, signal\napp = reliq.Reliq()\napp.handler('orders')(lambda message: signal.pause())\n"
    )
    queue = app.queue("orders")
    queue.send("x")
    arguments = ("worker", "shop", "--processes", "2", "--no-monitor")
    with running(*arguments, folder=tmp_path, fresh=True, RELIQ_URL=app.url, PYTHONPATH=str(tmp_path)):
        (busy,) = eventually(lambda: [one for one in app.store.run(every_worker()) if one.processing], timeout=30)
        (tmp_path / "reliq_monitor" / "reclaim.py").write_text("raise ImportError('of another version')\n")
        os.kill(busy.process.pid, signal.SIGKILL)
        eventually(lambda: queue.stats().counters.get("reclaimed"), timeout=30)
