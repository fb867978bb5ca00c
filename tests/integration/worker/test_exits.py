"""sys.exit() and its like in a handler and in what belongs to one: a failure of the message, and the worker goes on."""

import asyncio
import sys

import pytest

import reliq
from reliq.testing import work_off
from reliq.worker import Options, Worker
from reliq.worker.pools import EventLoop
from tests.support.handlers import KINDS, bind, settled, working_as
from tests.support.workers import eventually, working


async def in_a_task(error):
    async def leave():
        raise error

    await asyncio.create_task(leave())


async def under_wait_for(error):
    async def leave():
        await asyncio.sleep(0)
        raise error

    await asyncio.wait_for(leave(), 60)


async def among_others(error):
    async def leave():
        raise error

    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(leave())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["sys.exit", "KeyboardInterrupt"])
@pytest.mark.parametrize("where", [in_a_task, under_wait_for, among_others])
def test_an_exit_in_a_task_of_an_async_handler_is_a_failure_of_its_message(app, where, error):
    @app.handler("q", retry=lambda failures, error: None)
    async def handle(message: reliq.Message) -> None:
        if message.body == b"exits":
            await where(error)

    queue = app.queue("q")
    queue.send_many(["exits", *["fine"] * 20])
    with working(app):
        eventually(lambda: settled(app))
        queue.send("fine")
        eventually(lambda: queue.stats().counters.get("acked") == 21)
    (letter,) = queue.dead.list()
    assert (letter.body, letter.errors[-1].error_class) == (b"exits", type(error).__name__)


@pytest.mark.parametrize("what", ["an exit in a task that is not awaited", "an exit in a callback", "stop"])
def test_nothing_in_an_async_handler_ends_the_event_loop_of_the_others(app, what):
    began, tasks = asyncio.Event(), []

    async def leave():
        sys.exit()

    @app.handler("q")
    async def handle(message: reliq.Message) -> None:
        if message.body == b"beside":
            await began.wait()
            return
        loop = asyncio.get_running_loop()
        if what == "stop":
            loop.stop()
        elif what == "an exit in a callback":
            loop.call_soon(sys.exit)
        else:
            tasks.append(loop.create_task(leave()))
            tasks[-1].add_done_callback(asyncio.Task.exception)
        loop.call_later(0.01, began.set)

    queue = app.queue("q")
    queue.send_many(["beside", "ends the loop"])
    with working(app):
        eventually(lambda: queue.stats().counters.get("acked") == 2)


def test_handlers_that_exit_when_they_are_cancelled_keep_no_other_from_being_cancelled():
    began, ended = [], []
    event_loop = EventLoop()

    async def handle():
        began.append(handle)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(handle)
            asyncio.get_running_loop().call_soon(sys.exit)

    for _ in range(3):
        event_loop.submit(handle)
    eventually(lambda: len(began) == 3)
    event_loop.close()
    eventually(lambda: len(ended) == 3)
    eventually(lambda: not event_loop._thread.is_alive())


def test_an_event_loop_that_an_exit_has_ended_can_be_closed():
    event_loop = EventLoop()

    async def leave():
        event_loop._closing = True  # as `close` does, at the same moment
        sys.exit()

    event_loop.submit(leave)
    event_loop._thread.join(60)
    event_loop.close()


@pytest.mark.parametrize("is_suitable", [True, False])
def test_a_worker_that_ends_before_it_works_ends_its_event_loop_too(app, store, monkeypatch, is_suitable):
    """Found by a test that saw the thread of another's event loop."""
    bind(app, "async", print)
    worker = Worker(store, app.handlers, Options())
    monkeypatch.setattr(worker, "_redis_is_suitable", lambda: is_suitable)
    if is_suitable:
        worker.stop()
    event_loop = worker._asyncio
    assert event_loop is not None
    assert worker.run() == (0 if is_suitable else 1)
    eventually(lambda: not event_loop._thread.is_alive())


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exit_is_a_failure_when_a_test_works_off_a_queue_too(app, is_async):
    bind(app, "async" if is_async else "inline", lambda message: sys.exit(), retry=lambda failures, error: None)
    app.queue("q").send("x")
    assert work_off(app) == 1
    (letter,) = app.queue("q").dead.list()
    assert letter.errors[-1].error_class == "SystemExit"


class Exits(reliq.Middleware[reliq.Message]):
    def on_error(self, subject, error):
        sys.exit("on_error")


class ExitsLater(reliq.Middleware[reliq.Message]):
    async def on_error(self, subject, error):
        await asyncio.sleep(0)
        sys.exit("on_error")


@pytest.mark.parametrize(("kind", "hooks"), [*((kind, Exits) for kind in KINDS), ("async", ExitsLater)])
def test_an_exit_in_on_error_is_logged_and_the_first_error_stays(app, kind, hooks, caplog):
    app.middleware(runs=hooks())

    def handle(message):
        raise reliq.Dead("no such order")

    bind(app, kind, handle)
    app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().dead)
    (letter,) = app.queue("q").dead.list()
    assert (letter.reason, letter.errors[-1].text) == ("rejected", "no such order")
    assert "the first error stays" in caplog.text


def test_an_exit_in_on_error_of_a_send_is_logged_and_the_first_error_stays(app, caplog):
    class Sends(reliq.Middleware[reliq.Sending]):
        def on_error(self, subject, error):
            sys.exit("on_error")

    app.middleware(sends=Sends())
    app.queue("q").configure(max_length=1)
    app.queue("q").send("x")
    with pytest.raises(reliq.QueueFull):
        app.queue("q").send("y")
    assert "the first error stays" in caplog.text


def test_an_exit_in_an_upgrade_is_an_invalid_body(app, kind):
    @app.upgrade("q", version=2)
    def to_2(body):
        sys.exit("cannot be upgraded")

    bind(app, kind, lambda message: None)
    app.queue("q").send({}, headers={"body-version": "1"})
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().dead)
    (letter,) = app.queue("q").dead.list()
    assert letter.reason == "invalid"
    assert "SystemExit('cannot be upgraded')" in letter.errors[-1].text


class Returns(reliq.Middleware[reliq.Message]):
    def before(self, subject):
        return 5


def test_a_before_that_returns_a_value_fails_the_run_and_says_why(app, kind):
    app.middleware(runs=Returns())
    bind(app, kind, lambda message: None, retry=lambda failures, error: None)
    app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().dead)
    (letter,) = app.queue("q").dead.list()
    assert "TypeError: before of middleware Returns returned a value of type int" in letter.errors[-1].text


def test_a_before_that_returns_a_value_fails_the_send_and_says_why(face):
    app = face()
    app.middleware(sends=Returns())
    with pytest.raises(TypeError, match="before of middleware Returns returned a value of type int: a hook returns"):
        app.queue("q").send("x")
    assert app.queue("q").stats().ready == 0
