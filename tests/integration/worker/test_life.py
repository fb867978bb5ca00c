"""Cancellation, progress and checkpoints of messages that a worker runs."""

import asyncio
import threading
import time
from typing import Any

import pytest

import reliq
from reliq.features.tracking.model import Cancellation
from reliq.model.found import Place
from tests.support.handlers import bind, settled, working_as
from tests.support.workers import eventually, process, working


def test_a_running_handler_learns_that_its_message_is_cancelled(app, kind):
    began, told = [], []

    def run(message):
        began.append(message.id)
        eventually(lambda: message.cancelled)
        told.append(message.id)

    if kind == "async":

        @app.handler("q")
        async def handle(message: reliq.Message) -> None:
            began.append(message.id)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                assert message.cancelled
                told.append(message.id)
                raise
    else:
        bind(app, kind, run)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app, lease=1.5):
        eventually(lambda: began)
        assert queue.cancel(one) is Cancellation.TOLD
        eventually(lambda: told == [one])
        eventually(lambda: settled(app))
    stats = queue.stats()
    assert (stats.dead, stats.counters.get("retried", 0)) == (0, 0)
    assert stats.counters.get("cancelled", 0) + stats.counters.get("acked", 0) == 1
    assert (stats.counters.get("cancelled", 0) == 1) == (kind == "async")


def test_a_handler_that_fails_after_its_message_was_cancelled_is_not_tried_again(app, kind):
    def run(message):
        eventually(lambda: message.cancelled)
        raise ValueError("stopped half way")

    if kind != "async":
        bind(app, kind, run)
        queue = app.queue("q")
        one = queue.send("x")
        with working_as(kind, app, lease=1.5):
            eventually(lambda: queue.stats().processing)
            assert queue.cancel(one) is Cancellation.TOLD
            eventually(lambda: settled(app))
        assert queue.stats().counters["cancelled"] == 1


def test_a_cancelled_message_that_its_handler_puts_back_is_gone(app, kind):
    def handle(message):
        eventually(lambda: message.cancelled)
        return reliq.Again(delay=3600)

    bind(app, kind, handle)
    queue = app.queue("q")
    with working_as(kind, app, lease=1):
        one = queue.send("a")
        eventually(lambda: queue.stats().processing)
        assert queue.cancel(one) is Cancellation.TOLD
        eventually(lambda: settled(app))
        assert queue.stats().counters["cancelled"] == 1


def test_a_cancelled_message_whose_worker_was_killed_does_not_start_again(app, client, kind):
    handled = []
    queue = app.queue("q")
    one, other = queue.send_many(["x", "y"])
    queue.consumer().claim(2)
    assert queue.cancel(one) is Cancellation.TOLD
    client.delete(*client.keys("*lease:*"))
    bind(app, kind, lambda message: handled.append(message.id))
    with working_as(kind, app, monitor=True):
        eventually(lambda: handled and settled(app))
    assert handled == [other]
    assert queue.stats().counters["cancelled"] == 1
    assert queue.stats().counters["acked"] == 1


def test_a_message_that_is_held_and_has_not_started_does_not_start(app):
    handled = []

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        handled.append(message.json())
        if message.json() == 0:
            eventually(lambda: len(cancelled) == 2 and time.monotonic() > cancelled[1] + 1)

    queue, cancelled = app.queue("q"), []
    ids = queue.send_many(range(2))
    with working(app, lease=1.5):
        eventually(lambda: handled)
        answer = queue.cancel(ids[1])
        cancelled += [answer, time.monotonic()]
        eventually(lambda: settled(app))
    assert answer in (Cancellation.TOLD, Cancellation.CANCELLED)  # its worker hands back what waits too long
    assert handled == [0]
    assert queue.stats().counters["cancelled"] == 1


def test_reports_are_seen_while_the_handler_runs_and_go_with_the_message(app, kind, client):
    def report(message):
        message.progress(0.25, "page 1")
        message.progress(0.5, "page 2")  # too soon after the first to be sent
        message.checkpoint([1, 2])
        eventually(lambda: seen)

    if kind == "async":

        @app.handler("q")
        async def handle(message: reliq.Message) -> None:
            await message.progress(0.25, "page 1")
            await message.checkpoint([1, 2])
            await asyncio.to_thread(eventually, lambda: seen)
    else:
        bind(app, kind, report)
    queue, seen = app.queue("q"), []
    one = queue.send("x")
    with working_as(kind, app):

        def progress():
            found = queue.find(one)
            return found and found.place is Place.PROCESSING and found.progress and found.progress.state and found

        found = eventually(progress)
        seen.append(found)
        eventually(lambda: settled(app))
    assert (found.progress.fraction, found.progress.text) == (0.25, "page 1")
    assert client.keys("*report*") == []


@pytest.mark.parametrize("what", ["reports", "starts again"])
def test_async_handlers_that_fill_the_threads_of_asyncio_hold_up_no_other(app, what):
    """What the worker itself does for a handler has threads of its own."""
    done = threading.Event()

    @app.handler("slow")
    async def slow(message: reliq.Message) -> None:
        await asyncio.gather(*(asyncio.to_thread(done.wait, 30) for _ in range(40)))  # asyncio has 32 at most

    @app.handler("q", retry=reliq.fixed(0))
    async def handle(message: reliq.Message) -> None:
        if what == "starts again" and message.failures == 0:
            await message.checkpoint(1)
            raise ValueError("as planned")
        await message.checkpoint(2)
        done.set()

    app.queue("slow").send("x")
    with working_as("async", app, monitor=True):
        eventually(lambda: app.queue("slow").stats().processing == 1)
        app.queue("q").send("x")
        assert done.wait(20)
        eventually(lambda: settled(app))


def test_the_next_try_gets_the_checkpoint_of_the_one_that_failed(app, kind):
    states = []

    async def run_async(message):
        states.append(message.state)
        if len(states) < 4:
            await message.checkpoint({"step": len(states)})
            raise reliq.Retry(delay=0)

    def run(message):
        states.append(message.state)
        if len(states) < 4:
            message.checkpoint({"step": len(states)})
            raise reliq.Retry(delay=0)

    app.handler("q", retry=reliq.fixed("1ms", limit=9))(run_async if kind == "async" else run)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: len(states) == 4 and settled(app))
    assert states == [None, {"step": 1}, {"step": 2}, {"step": 3}]


def test_a_worker_that_was_robbed_cannot_write(app, client):
    lost: list[Any] = []

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        if not message.redelivered:
            message.checkpoint(1)
            client.delete(*client.keys("*lease:*"))
            try:
                message.checkpoint("stolen")
            except reliq.LeaseLost as error:
                lost.append(str(error))
            eventually(lambda: app.queue("q").stats().counters.get("reclaimed"))
            return
        lost.append(message.state)

    app.queue("q").send("x")
    with working(app, monitor=True):
        eventually(lambda: len(lost) == 2 and settled(app))
    assert "is not held here any more" in lost[0]
    assert lost[1] == 1


KILLED = """
import os, signal, sys
import reliq

app = reliq.Reliq()
MODE = os.environ["MODE"]

@app.handler("steps", retry=reliq.fixed("10ms"))
def run(message):
    steps = message.state or []
    while len(steps) < message.json():
        steps.append(len(steps))
        with open(os.environ["TRACE"], "a") as trace:
            trace.write(f"{steps[-1]}\\n")
        if MODE == "checkpoint":
            message.checkpoint(steps)
        if len(steps) % 2 == 0 or MODE == "none":
            os.kill(os.getpid(), signal.SIGKILL)
"""


def run_steps(app, tmp_path, mode, steps, until):
    (tmp_path / "shop.py").write_text(KILLED)
    queue = app.queue("steps")
    queue.send(steps)
    trace = tmp_path / "trace"
    arguments = ("worker", "shop:app", "--processes", "2", "--url", app.url)
    environment = {"MODE": mode, "TRACE": str(trace)}
    with process(*arguments, folder=tmp_path, **environment):
        eventually(lambda: until(queue.stats()), timeout=20 + 5 * steps)
    return [int(line) for line in trace.read_text().split()]


def survives(app, tmp_path, kills):
    """Kill a process after each second step: none is lost, none but those in flight runs twice, none is charged."""
    app.queue("steps").configure(max_deliveries=2)
    steps = run_steps(app, tmp_path, "checkpoint", 2 * kills + 1, lambda stats: stats.counters.get("acked"))
    once = [step for step, before in zip(steps, [-1, *steps], strict=False) if step != before]
    assert once == list(range(2 * kills + 1))
    assert app.queue("steps").stats().counters.get("reclaimed", 0) >= kills


def test_a_checkpoint_survives_kill_9_and_progress_is_no_poison(app, tmp_path):
    survives(app, tmp_path, 4)


@pytest.mark.slow
@pytest.mark.timeout(900)  # two to five minutes
def test_checkpoints_survive_a_hundred_kills(app, tmp_path):
    survives(app, tmp_path, 100)


def test_a_message_that_kills_its_worker_without_progress_becomes_a_dead_letter(app, tmp_path):
    app.queue("steps").configure(max_deliveries=2)
    steps = run_steps(app, tmp_path, "none", 3, lambda stats: stats.dead)
    assert steps == [0, 0]
    assert app.queue("steps").dead.list().letters[0].reason == "max_deliveries"


@pytest.mark.parametrize("ending", ["ack", "retry"])
def test_what_outlives_its_handler_cannot_store_a_checkpoint(app, kind, client, ending):
    refused: list[str] = []
    settled_now = threading.Event()

    def report_late(report):
        settled_now.wait()
        try:
            report()
        except reliq.LeaseLost as error:
            refused.append(str(error))

    def end():
        if ending == "retry":
            raise reliq.Retry

    def run(message):
        threading.Thread(target=report_late, args=[lambda: message.checkpoint("late")], daemon=True).start()
        end()

    async def run_async(message):
        def report():
            asyncio.run_coroutine_threadsafe(message.checkpoint("late"), loop).result()

        loop = asyncio.get_running_loop()
        threading.Thread(target=report_late, args=[report], daemon=True).start()
        end()

    app.handler("q", retry=reliq.fixed("1h"))(run_async if kind == "async" else run)
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app):
        eventually(lambda: queue.stats().counters.get("acked" if ending == "ack" else "retried"))
        settled_now.set()
        eventually(lambda: refused)
    assert "its handler has ended" in refused[0]
    assert client.keys("*report*") == []


def test_between_its_return_and_its_ack_a_handler_cannot_report_either(app, client):
    late: list[Any] = []

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        if message.body == b"first":
            late.append(message)
            return
        with pytest.raises(reliq.LeaseLost, match="its handler has ended"):
            late[0].checkpoint("late")
        late.append("refused")

    queue = app.queue("q")
    queue.send_many(["first", "second"])  # one batch: both are acked together
    with working(app):
        eventually(lambda: settled(app))
    assert (late[1:], queue.stats().dead) == (["refused"], 0)
    assert client.keys("*report*") == []


def test_what_was_reported_about_a_purged_dead_letter_goes_with_it(app, client):
    @app.handler("q", retry=reliq.fixed(0, limit=0))
    def fail(message: reliq.Message) -> None:
        message.checkpoint({"step": 1})
        raise ValueError("stopped")

    queue = app.queue("q")
    with working(app):
        queue.send_many(["x", "y"])
        eventually(lambda: queue.stats().dead == 2)
    kept, gone = (letter.id for letter in queue.dead.list())
    client.hset(f"reliq:{{q}}:report:{kept}", "at", 2**50)  # of a later message with the same id
    assert queue.dead.purge(all=True) == 2
    assert client.keys("*:report:*") == [f"reliq:{{q}}:report:{kept}".encode()]
    assert gone != kept
