"""Middleware around runs and sends, on a real Redis."""

import asyncio
import math
import threading
from contextvars import ContextVar
from typing import Any

import pytest

import reliq
from reliq import aio
from reliq.testing import work_off
from reliq.worker import Options, Worker
from tests.support.handlers import KINDS, bind, settled, working_as
from tests.support.workers import eventually

request: ContextVar[str] = ContextVar("request", default="none")


class Recorder(reliq.Middleware[Any]):
    """Notes what is called, in which order, with which context variable."""

    def __init__(self, name: str, seen: list[tuple[Any, ...]], raises: str = "") -> None:
        self.name = name
        self.seen = seen
        self.raises = raises

    def before(self, subject):
        self.note("before")
        request.set(f"{request.get()}>{self.name}")

    def after(self, subject, result):
        self.note("after", result)

    def on_error(self, subject, error):
        self.note("on_error", type(error).__name__)

    def on_suspend(self, subject):
        self.note("on_suspend")

    def note(self, hook, *more):
        self.seen.append((self.name, hook, request.get(), *more))
        if hook == self.raises:
            raise LookupError(hook)


class AsyncRecorder(Recorder):
    """The same with hooks that are awaited."""

    async def before(self, subject):
        await asyncio.sleep(0)
        super().before(subject)

    async def after(self, subject, result):
        await asyncio.sleep(0)
        super().after(subject, result)

    async def on_error(self, subject, error):
        await asyncio.sleep(0)
        super().on_error(subject, error)

    async def on_suspend(self, subject):
        await asyncio.sleep(0)
        super().on_suspend(subject)


WAYS = [*((kind, Recorder) for kind in KINDS), ("async", AsyncRecorder)]
all_ways = pytest.mark.parametrize(("kind", "middleware"), WAYS)
ways = pytest.mark.parametrize(("kind", "middleware"), [("inline", Recorder), ("async", AsyncRecorder)])


def run_one(app, kind, function, **options):
    """Let a worker run the function for one message, and wait for the end of it."""
    bind(app, kind, function, **options)
    app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: settled(app) or app.queue("q").stats().delayed)


@all_ways
def test_hooks_are_around_the_handler_in_one_context(app, kind, middleware):
    seen: list[tuple[Any, ...]] = []
    for name in ("outer", "inner"):
        app.middleware(runs=middleware(name, seen))

    def handle(message):
        seen.append(("handler", request.get()))
        request.set("left by the handler")
        return "the result"

    run_one(app, kind, handle)
    assert seen == [
        ("outer", "before", "none"),
        ("inner", "before", "none>outer"),
        ("handler", "none>outer>inner"),
        ("inner", "after", "left by the handler", "the result"),
        ("outer", "after", "left by the handler", "the result"),
    ]


@all_ways
def test_a_run_sees_nothing_of_the_one_before(app, kind, middleware):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=middleware("one", seen))
    bind(app, kind, lambda message: request.set(message.id))
    app.queue("q").send_many(["x"] * 50)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert [entry for entry in seen if entry[1] == "before"] == [("one", "before", "none")] * 50


@ways
def test_an_error_reaches_on_error_and_its_message_is_retried(app, kind, middleware):
    seen: list[tuple[Any, ...]] = []
    for name in ("outer", "inner"):
        app.middleware(runs=middleware(name, seen))

    def handle(message):
        raise KeyError("no")

    run_one(app, kind, handle, retry=reliq.fixed("1h"))
    assert [entry[:2] + entry[3:] for entry in seen] == [
        ("outer", "before"),
        ("inner", "before"),
        ("inner", "on_error", "KeyError"),
        ("outer", "on_error", "KeyError"),
    ]
    (waiting,) = app.queue("q").delayed.list()
    assert waiting.errors[-1].error_class == "KeyError"


def test_a_stop_iteration_is_that_error_also_in_a_step(app):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))

    def handle(message):
        try:
            message.step("first", next, iter(()))
        except StopIteration:
            next(iter(()))

    run_one(app, "inline", handle, dead_on=StopIteration)
    assert seen[-1][3] == "StopIteration"
    (letter,) = app.queue("q").dead.list()
    assert (letter.reason, letter.errors[-1].error_class) == ("rejected", "StopIteration")


@ways
@pytest.mark.parametrize(
    ("raises", "expected"),
    [
        ("before", [("outer", "before"), ("inner", "before"), ("outer", "on_error", "LookupError")]),
        (
            "after",
            [("outer", "before"), ("inner", "before"), ("inner", "after", None), ("outer", "on_error", "LookupError")],
        ),
    ],
)
def test_a_hook_that_raises_fails_the_run_and_the_outer_ones_are_told(app, kind, middleware, raises, expected):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=middleware("outer", seen))
    app.middleware(runs=middleware("inner", seen, raises))
    ran: list[reliq.Message] = []
    run_one(app, kind, ran.append, retry=reliq.fixed("1h"))
    assert [entry[:2] + entry[3:] for entry in seen] == expected
    assert len(ran) == (raises == "after")
    (waiting,) = app.queue("q").delayed.list()
    assert waiting.errors[-1].error_class == "LookupError"


@ways
def test_an_on_error_that_raises_is_logged_and_the_first_error_stays(app, kind, middleware, caplog):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=middleware("outer", seen))
    app.middleware(runs=middleware("inner", seen, "on_error"))

    def handle(message):
        raise KeyError("no")

    run_one(app, kind, handle, retry=reliq.fixed("1h"))
    assert [entry[1] for entry in seen] == ["before", "before", "on_error", "on_error"]
    assert "on_error of middleware" in caplog.text
    (waiting,) = app.queue("q").delayed.list()
    assert waiting.errors[-1].error_class == "KeyError"


@pytest.mark.parametrize(("error", "reason"), [(reliq.Dead("no"), "rejected"), (reliq.Retry(delay="1h"), None)])
def test_before_decides_about_a_message_as_a_handler_does(app, error, reason):
    class Gate(reliq.Middleware[reliq.Message]):
        def before(self, message):
            raise error

    app.middleware(runs=Gate())
    run_one(app, "inline", print)
    assert [letter.reason for letter in app.queue("q").dead.list()] == ([reason] if reason else [])
    assert app.queue("q").stats().delayed == (reason is None)


def test_a_body_that_does_not_fit_is_an_error_and_a_typed_handler_runs_inside(app):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))

    @app.handler("q")
    def handle(order: dict[str, int]) -> None:
        seen.append(("handler", order))

    app.queue("q").send_many([{"a": 1}, {"a": "b"}])
    assert work_off(app) == 2
    assert [entry[1] for entry in seen] == ["before", {"a": 1}, "after", "before", "on_error"]
    assert seen[-1][-1] == "InvalidBody"


@pytest.mark.parametrize("then", ["is cancelled", "swallows the cancellation", "raises another error"])
def test_an_async_handler_that_exceeds_its_time_limit_is_that_error(app, then):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=AsyncRecorder("one", seen))

    @app.handler("q", time_limit=0.05, retry=reliq.fixed("1h"))
    async def handle(message):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if then == "raises another error":
                raise ValueError("late") from None
            if then == "is cancelled":
                raise

    app.queue("q").send("x")
    with working_as("async", app):
        eventually(lambda: len(seen) == 2)
    assert seen[1][1:] == ("on_error", "none>one", "TimeLimitExceeded")


def test_a_hook_that_ends_beyond_the_time_limit_is_that_error_to_those_around_it(app):
    seen: list[tuple[Any, ...]] = []
    release = threading.Event()

    class Slow(reliq.Middleware[reliq.Message]):
        def after(self, message, result):
            release.wait(20)

    app.middleware(runs=Recorder("outer", seen))
    app.middleware(runs=Slow())
    app.handler("q", time_limit=0.05, retry=reliq.fixed("1h"))(lambda message: None)
    app.queue("q").send("x")
    with working_as("inline", app):
        eventually(lambda: app.queue("q").stats().delayed == 1)
        release.set()
        eventually(lambda: len(seen) == 2)
    assert seen[1][1:] == ("on_error", "none>outer", "TimeLimitExceeded")


@pytest.mark.parametrize("kind", ["inline", "threads"])
@pytest.mark.parametrize("then", ["returns", "raises"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_handler_that_ends_beyond_its_time_limit_is_that_error(app, kind, then, size):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))
    release = threading.Event()

    @app.handler("q", time_limit=0.05, retry=reliq.fixed("1h"))
    def handle(message):
        release.wait(20)
        if then == "raises":
            raise ValueError("late")

    app.queue("q").send("x" * size)
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().delayed == 1)
        release.set()
        eventually(lambda: len(seen) == 2)
    assert seen[1][1:] == ("on_error", "none>one", "TimeLimitExceeded")


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_after_gets_what_the_handler_returned_where_it_is_kept_as_a_result(app, kind):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))

    async def answer_async(message):
        return {"answer": 42}

    app.handler("q", result="1h")(answer_async if kind == "async def" else lambda message: {"answer": 42})
    identity = app.queue("q").send("x")
    assert work_off(app) == 1
    assert seen[-1][-1] == {"answer": 42}
    assert app.queue("q").result(identity) == {"answer": 42}


async def _never():
    raise AssertionError


def _generator():
    yield from ()


UNFIT = {
    "not a number": (lambda: math.nan, "InvalidMessage"), "an object": (object, "InvalidMessage"),
    "too large": (lambda: "x" * (1 << 20), "InvalidMessage"), "a generator": (_generator, "TypeError"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(("make", "error"), UNFIT.values(), ids=UNFIT)
def test_a_result_that_cannot_be_kept_is_an_error(app, kind, make, error):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))

    async def answer_async(message):
        return make()

    app.handler("q", result="1h", retry=0)(answer_async if kind == "async def" else lambda message: make())
    app.queue("q").send("x")
    assert work_off(app) == 1
    assert [entry[1::2] for entry in seen] == [("before",), ("on_error", error)]
    assert [letter.reason for letter in app.queue("q").dead.list()] == ["max_failures"]


def test_a_coroutine_that_a_def_returns_is_an_error(app):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))
    app.handler("q", retry=0)(lambda message: _never())
    app.queue("q").send("x")
    assert work_off(app) == 1
    assert [entry[1::2] for entry in seen] == [("before",), ("on_error", "TypeError")]


def test_a_message_that_was_handled_before_passes_no_middleware(app):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen))
    app.handler("q", once=True)(lambda message: None)
    for _ in range(2):
        app.queue("q").send("x", id="mine")
        assert work_off(app) == 1
    assert len(seen) == 2


def test_a_broadcast_passes_the_middleware_of_runs(app):
    seen: list[tuple[Any, ...]] = []
    done = threading.Event()
    app.middleware(runs=Recorder("one", seen))
    app.broadcast("config.#")(lambda message: done.set())
    with working_as("inline", app):
        eventually(app.topics.list)
        app.publish("config.new", "x")
        assert done.wait(20)
        eventually(lambda: len(seen) == 2)


def test_an_async_hook_around_a_def_is_refused_when_the_worker_starts(app):
    app.middleware(runs=AsyncRecorder("one", []))
    app.handler("q")(print)
    with pytest.raises(reliq.InvalidHandler, match="before of middleware AsyncRecorder is async, and the handler of"):
        Worker(app.store, app.handlers, Options())


def test_a_hook_that_must_be_awaited_and_cannot_be_fails_the_run(app):
    class Hidden(reliq.Middleware[reliq.Message]):
        def before(self, message):
            return asyncio.sleep(0)

    app.middleware(runs=Hidden())
    with pytest.warns(RuntimeWarning, match="never awaited"):
        run_one(app, "inline", print, retry=reliq.fixed("1h"))
    (waiting,) = app.queue("q").delayed.list()
    assert "make the hook a def" in waiting.errors[-1].text


# --- sends ---


class Stamp(reliq.Middleware[reliq.Sending]):
    """Notes the sender's context variable in the headers."""

    def __init__(self) -> None:
        self.destinations: list[tuple[str, int]] = []

    def before(self, sending):
        self.destinations.append((sending.destination, len(sending.messages)))
        for message in sending.messages:
            message.headers["request"] = request.get()
        request.set("seen by the hooks alone")


class AsyncStamp(Stamp):
    async def before(self, sending):
        await asyncio.sleep(0)
        super().before(sending)


def received(app):
    with app.queue("q").consumer() as consumer:
        messages = consumer.claim(limit=10)
        consumer.ack(*messages)
    return messages


def test_a_send_passes_its_middleware(app):
    stamp = Stamp()
    app.middleware(sends=stamp)
    app.subscribe("q", "a.#")
    request.set("r-1")
    try:
        queue = app.queue("q")
        queue.send("x")
        queue.send_many(["x", "x"])
        queue.send_many(["x", "x"], headers={"mine": "kept"})
        queue.prepare("x").commit()
        app.publish("a.b", "x")
        assert request.get() == "r-1"
    finally:
        request.set("none")
    messages = received(app)
    assert [message.headers["request"] for message in messages] == ["r-1"] * 7
    assert [message.headers.get("mine") for message in messages].count("kept") == 2
    assert stamp.destinations == [("q", 1), ("q", 2), ("q", 2), ("q", 1), ("a.b", 1)]


@pytest.mark.parametrize("stamp", [Stamp, AsyncStamp])
def test_a_send_of_asyncio_passes_its_middleware(app, url, stamp):
    async def send():
        async with aio.Reliq(url) as shop:
            shop.middleware(sends=stamp())
            await shop.subscribe("q", "a.#")
            request.set("r-2")
            await shop.queue("q").send("x")
            await shop.queue("q").send_many(["x", "x"])
            async with await shop.queue("q").prepare("x"):
                pass
            await shop.publish("a.b", "x")
            return request.get()

    assert asyncio.run(send()) == "r-2"
    assert [message.headers for message in received(app)] == [{"request": "r-2"}] * 5


def test_headers_of_each_message_are_its_own(app):
    class Number(reliq.Middleware[reliq.Sending]):
        def before(self, sending):
            for number, message in enumerate(sending.messages):
                message.headers["number"] = str(number)

    app.middleware(sends=Number())
    app.queue("q").send_many(["x"] * 3, headers={"mine": "kept"})
    assert sorted(message.headers["number"] for message in received(app)) == ["0", "1", "2"]


@pytest.mark.parametrize("middleware", [Recorder, AsyncRecorder])
def test_the_result_and_the_error_of_a_send_reach_the_hooks(url, middleware):
    seen: list[tuple[Any, ...]] = []

    async def send():
        async with aio.Reliq(url) as shop:
            for name in ("outer", "inner"):
                shop.middleware(sends=middleware(name, seen))
            await shop.queue("q").configure(max_length=1)
            sent = await shop.queue("q").send("x")
            with pytest.raises(reliq.QueueFull):
                await shop.queue("q").send("x")
            return sent

    sent = asyncio.run(send())
    assert [entry[:2] + entry[3:] for entry in seen] == [
        ("outer", "before"), ("inner", "before"), ("inner", "after", [sent]), ("outer", "after", [sent]),
        ("outer", "before"), ("inner", "before"),
        ("inner", "on_error", "QueueFull"), ("outer", "on_error", "QueueFull"),
    ]  # fmt: skip


def test_a_prepared_message_and_one_that_reaches_no_queue_reach_the_hooks(app):
    seen: list[tuple[Any, ...]] = []
    app.middleware(sends=Recorder("one", seen))
    prepared = app.queue("q").prepare("x")
    app.publish("nowhere", "x")
    with pytest.raises(reliq.Unroutable):
        app.publish("nowhere", "x", mandatory=True)
    assert [entry[1::2] for entry in seen] == [
        ("before",), ("after", [prepared.id]), ("before",), ("after", {}), ("before",), ("on_error", "Unroutable")
    ]  # fmt: skip


def test_before_refuses_a_send_and_nothing_is_sent(app):
    class Gate(reliq.Middleware[reliq.Sending]):
        def before(self, sending):
            raise PermissionError(sending.destination)

    app.middleware(sends=Gate())
    for send in (app.queue("q").send, lambda body: app.queue("q").send_many([body])):
        with pytest.raises(PermissionError, match="q"):
            send("x")
    assert app.queue("q").stats().ready == 0


def test_a_cancelled_send_is_told_to_its_hooks(url):
    seen: list[tuple[Any, ...]] = []

    class Slow(AsyncRecorder):
        async def before(self, sending):
            await super().before(sending)
            started.set()
            await asyncio.sleep(60)

    async def send():
        async with aio.Reliq(url) as shop:
            shop.middleware(sends=AsyncRecorder("outer", seen))
            shop.middleware(sends=Slow("inner", seen))
            task = asyncio.create_task(shop.queue("q").send("x"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await shop.queue("q").stats()).ready

    started = asyncio.Event()
    assert asyncio.run(send()) == 0
    assert [entry[:2] + entry[3:] for entry in seen] == [
        ("outer", "before"), ("inner", "before"), ("outer", "on_error", "CancelledError"),
    ]  # fmt: skip


@all_ways
def test_a_run_that_sleeps_is_suspended_and_its_last_one_succeeds(app, kind, middleware):
    """A hook tells a run that goes on later from one that has returned None."""
    seen: list[tuple[Any, ...]] = []
    for name in ("outer", "inner"):
        app.middleware(runs=middleware(name, seen))

    def handle(message):
        message.sleep("a while", 0.01)
        return "the end"

    async def handle_async(message):
        await message.sleep("a while", 0.01)
        return "the end"

    app.handler("q")(handle_async if kind == "async" else handle)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: ("outer", "after", "the end") in [entry[:2] + entry[3:] for entry in seen])
    assert [entry[:2] + entry[3:] for entry in seen] == [
        ("outer", "before"), ("inner", "before"), ("inner", "on_suspend"), ("outer", "on_suspend"),
        ("outer", "before"), ("inner", "before"), ("inner", "after", "the end"), ("outer", "after", "the end"),
    ]  # fmt: skip


def test_an_error_of_on_suspend_is_logged_and_the_message_sleeps(app, caplog):
    seen: list[tuple[Any, ...]] = []
    app.middleware(runs=Recorder("one", seen, raises="on_suspend"))
    app.handler("q")(lambda message: message.sleep("long", "1h"))
    app.queue("q").send("x")
    work_off(app)
    assert [entry[1] for entry in seen] == ["before", "on_suspend"]
    assert "on_suspend of middleware Recorder failed" in caplog.text
    (asleep,) = app.queue("q").delayed.list()
    assert asleep.failures == 0


def test_a_middleware_that_cannot_be_called_is_refused(app):
    class Half:
        def before(self, subject): ...
        def after(self, subject): ...
        def on_error(self, subject, error): ...

    for wrong, problem in (
        (Half(), r"Half\.after\(subject\), which cannot be called"),
        (object(), "is no middleware: it has none of before, after"),
    ):
        for way in ("runs", "sends"):
            with pytest.raises(reliq.InvalidHandler, match=problem):
                app.middleware(**{way: wrong})


def test_an_async_hook_around_the_sends_of_a_synchronous_application_is_refused(app):
    with pytest.raises(
        reliq.InvalidHandler, match=r"before of middleware AsyncStamp is async, and reliq\.Reliq is not"
    ):
        app.middleware(sends=AsyncStamp())


def test_a_class_of_its_own_need_not_know_of_suspended_runs(app):
    seen: list[str] = []

    class Three:
        def before(self, message):
            seen.append("before")

        def after(self, message, result):
            seen.append("after")

        def on_error(self, message, error):
            seen.append("on_error")

    app.middleware(runs=Three())

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        message.sleep("a moment", seconds=0.01)

    app.queue("q").send("x")
    with working_as("inline", app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)
    assert seen == ["before", "before", "after"]


@pytest.mark.parametrize("kind", KINDS)
def test_context_variables_that_a_handler_sets_do_not_reach_the_next_message(app, kind):
    found = []

    def handle(message: reliq.Message) -> None:
        found.append(request.get())
        request.set(message.id)

    bind(app, kind, handle)
    app.queue("q").send_many(["x"] * 20)
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert found == ["none"] * 20
