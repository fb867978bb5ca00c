"""Durable handlers: steps, sleeps and waits for signals, by workers with threads and with asyncio."""

import asyncio
import contextlib
import dataclasses
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import reliq
from reliq import ops
from reliq.features.steps import driving
from reliq.features.steps import ops as own
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.model.policy import RunOver
from reliq.model.token import as_token
from reliq.runtime.moment import Moment
from reliq.testing import work_off
from tests.support.handlers import settled, working_as
from tests.support.timeouts import end_timeouts
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")


@pytest.fixture
def durable(kind, app, client):
    """A function that binds a generator-like handler: `act(name, *args)` calls a method of the message."""

    def bound(handle, **options: Any) -> None:
        if kind == "async":

            @app.handler("q", **options)
            async def run_async(message: reliq.Message) -> Any:
                steps = handle(message)
                answer = None
                try:
                    while True:
                        try:
                            asked = steps.send(answer) if not isinstance(answer, BaseException) else steps.throw(answer)
                            answer = await asked()
                        except StopIteration as end:
                            return end.value
                        except Exception as error:  # the handler may catch it
                            if asked is None:
                                raise
                            asked, answer = None, error
                finally:
                    steps.close()
        else:

            @app.handler("q", **options)
            def run(message: reliq.Message) -> Any:
                steps = handle(message)
                answer = None
                while True:
                    try:
                        asked = steps.send(answer) if not isinstance(answer, BaseException) else steps.throw(answer)
                    except StopIteration as end:
                        return end.value
                    try:
                        answer = asked()
                    except Exception as error:
                        answer = error

    return bound


def now_due(client) -> None:
    """Let the delayed messages of a queue be due."""
    keys = QueueKeys("q")
    for element in client.zrange(keys.delayed, 0, -1):
        client.zadd(keys.delayed, {element: 1})
    for field in client.hkeys(keys.index):
        client.hset(keys.index, field, 1)


def nothing_is_left(client) -> None:
    assert client.hlen(KEYS.followed) == 0
    assert client.hget(KEYS.config, "recorded") is None
    assert not client.exists(KEYS.parked, KEYS.waits)


def test_a_finished_step_does_not_run_again(app, client, kind, durable):
    ran: list[str] = []

    def note(name: str) -> dict[str, str]:
        ran.append(name)
        return {"was": name}

    def handle(message):
        first = yield lambda: message.step("first", note, "first")
        second = yield lambda: message.step("second", note, "second")
        assert (first, second) == ({"was": "first"}, {"was": "second"})
        if message.failures == 0:
            raise ValueError("half way")
        ran.append("end")

    durable(handle, retry=reliq.fixed(0, limit=3))
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert ran == ["first", "second", "end"]
    assert app.queue("q").stats().counters["acked"] == 1
    nothing_is_left(client)


def test_a_sleep_holds_no_worker_and_is_not_counted_as_a_failure(app, client, kind, durable):
    ran: list[str] = []

    def handle(message):
        yield lambda: message.step("before", lambda: ran.append("before"))
        yield lambda: message.sleep("night", days=7)
        ran.append(f"after {message.failures}")

    durable(handle)
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed)
        stats = queue.stats()
        assert (stats.processing, stats.ready, stats.counters["slept"]) == (0, 0, 1)
        (one,) = queue.delayed.list()
        assert 7 * 86_400 - 60 < one.due_at / 1000 - time.time() < 7 * 86_400 + 60
        now_due(client)
        eventually(lambda: settled(app))
    assert ran == ["before", "after 0"]
    nothing_is_left(client)


def test_a_parked_message_goes_on_with_the_value_of_its_signal(app, client, kind, durable):
    given = []

    def handle(message):
        given.append((yield lambda: message.wait("approval")))

    durable(handle)
    queue = app.queue("q")
    one = queue.send("x", headers={"order": "7"})
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().parked)
        assert queue.stats().missing == 0
        (parked,) = queue.parked()
        assert (parked.id, parked.signal, parked.until) == (one, "approval", 0)
        assert parked.message.headers == {"order": "7"}
        found = queue.find(one)
        assert found is not None
        assert (found.place, found.why) == (Place.PARKED, "it waits for a signal")
        assert app.signal(one, "approval", {"by": "ann"}) is True
        eventually(lambda: settled(app))
    assert given == [{"by": "ann"}]
    with pytest.raises(reliq.SignalRefused, match="it has left the queue") as refused:
        queue.signal(one, "approval", {"by": "bob"})
    assert refused.value.outcome == "ended"


def test_a_signal_that_comes_early_is_kept_and_the_first_one_counts(app, client, kind, durable):
    given = []

    def handle(message):
        given.append((yield lambda: message.wait("go")))
        given.append((yield lambda: message.wait("go")))

    durable(handle)
    queue = app.queue("q")
    one = queue.send("x")
    assert queue.signal(one, "go", 1) is True
    assert queue.signal(one, "go", 2) is False
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert given == [1, 1]
    assert queue.stats().counters.get("parked", 0) == 0


def test_a_wait_ends_after_its_time_and_a_late_signal_is_refused(app, client, kind, durable):
    ends = []

    def handle(message):
        try:
            yield lambda: message.wait("never", timeout="1h")
        except reliq.SignalTimeout as error:
            ends.append(str(error))
        ends.append((yield lambda: message.wait("never", default="none")))
        yield lambda: message.wait("close")

    durable(handle)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: end_timeouts(client, KEYS.waits))
        eventually(lambda: [two.signal for two in queue.parked()] == ["close"])
        with pytest.raises(reliq.SignalRefused, match="its time to wait for this signal is over"):
            queue.signal(one, "never")
        queue.signal(one, "close")
        eventually(lambda: settled(app))
    assert ends[-2:] == [f"message {one} of 'q' got no signal 'never' in time", "none"]
    assert queue.stats().counters["timed_out"] == 1


@pytest.mark.parametrize("with_traceback", [False, True])
def test_a_step_that_is_tried_again_is_logged_as_a_handler_is(app, kind, durable, caplog, monkeypatch, with_traceback):
    monkeypatch.setenv("RELIQ_LOG_TRACEBACKS", str(int(with_traceback)))

    def boom() -> None:
        raise KeyError("no such card")

    def handle(message):
        yield lambda: message.step("pay", boom, retry=reliq.fixed("1h", limit=3))

    durable(handle)
    identity = app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().delayed)
    (record,) = [one for one in caplog.records if one.getMessage().startswith("failed ")]
    line = record.getMessage()
    assert (record.name, record.levelname) == ("reliq.worker", "WARNING")
    assert line.startswith(f"failed queue=q id={identity} step=pay failures=1 retry_in_seconds=3600.0 ")
    assert "error_class=KeyError error='no such card' at=" in line
    assert ("in boom" in line.partition(" exception=")[2]) is with_traceback


def test_a_step_is_tried_again_by_its_own_policy_and_the_others_do_not_run_again(app, client, kind, durable):
    ran: list[str] = []

    def flaky() -> str:
        ran.append("flaky")
        if ran.count("flaky") < 3:
            raise ConnectionError("not now")
        return "there"

    def handle(message):
        yield lambda: message.step("once", lambda: ran.append("once"))
        assert (yield lambda: message.step("flaky", flaky, retry=reliq.fixed(0, limit=2))) == "there"
        ran.append(f"failures {message.failures} errors {len(message.errors)}")

    durable(handle)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert ran == ["once", "flaky", "flaky", "flaky", "failures 0 errors 2"]
    assert app.queue("q").stats().counters["retried"] == 2


def test_a_step_that_fails_for_good_kills_its_message_and_runs_again_after_a_redrive(app, client, kind, durable):
    ran: list[str] = []
    broken = [True]

    def fragile() -> str:
        ran.append("fragile")
        if broken:
            raise ValueError("no such card")
        return "paid"

    def handle(message):
        yield lambda: message.step("before", lambda: ran.append("before"))
        assert (yield lambda: message.step("pay", fragile, retry=reliq.fixed(0, limit=1))) == "paid"

    durable(handle, retry=5)
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().dead)
        (letter,) = queue.dead.list()
        assert letter.reason == "rejected"
        assert "step 'pay' failed for good, after 2 tries: ValueError: no such card" in letter.last_error.text
        broken.clear()
        queue.dead.redrive()
        eventually(lambda: settled(app) and queue.stats().counters["acked"])
    assert ran == ["before", "fragile", "fragile", "fragile"]
    nothing_is_left(client)


def test_a_back_off_of_a_step_that_is_not_called_is_refused_before_the_step_runs(app, kind, durable):
    ran: list[str] = []

    def handle(message):
        yield lambda: message.step("card", lambda: ran.append("card"), retry=reliq.fixed)

    durable(handle, retry=0)
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app):
        eventually(lambda: queue.stats().dead)
    (letter,) = queue.dead.list()
    assert "retry of step 'card' is reliq.fixed, which is not called" in letter.last_error.text
    assert ran == []


def test_a_failed_step_may_be_caught_and_fails_again_when_the_handler_runs_again(app, client, kind, durable):
    ran: list[str] = []

    def refused() -> None:
        ran.append("refused")
        raise ValueError("no")

    def handle(message):
        try:
            yield lambda: message.step("card", refused, retry=0)
        except reliq.StepFailed as error:
            ran.append(f"{error.step}: {error.error}")
        yield lambda: message.sleep("a while", "1h")
        ran.append("end")

    durable(handle)
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed)
        now_due(client)
        eventually(lambda: settled(app))
    assert ran == ["refused", "card: ValueError: no", "card: ValueError: no", "end"]


@pytest.mark.parametrize(
    ("former", "changed", "said"),
    [
        (["a", "b"], ["a", "c"], "step 2 of this handler is 'c', and was 'b'"),
        (["a", "b"], ["b", "a"], "step 'b' is number 1 of this handler, and was number 2"),
        (["a", "b"], ["new", "a", "b"], "step 1 of this handler is 'new', and was 'a'"),
        (["a", "a"], ["a"], "two steps of this handler are called 'a'"),
    ],
)
def test_changed_steps_are_an_error_that_says_what_changed(app, client, kind, durable, former, changed, said):
    names = [former]

    def handle(message):
        for name in names[-1]:
            yield lambda name=name: message.step(name, lambda: name)
        names.append(changed)
        yield lambda: message.sleep("between", "1h")

    durable(handle, retry=reliq.fixed("1h", limit=3))
    queue = app.queue("q")
    queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed)
        if former != ["a", "a"]:
            now_due(client)
        eventually(lambda: [one for one in queue.delayed.list() if one.errors])
    assert said in queue.delayed.list()[0].errors[-1].text


def test_a_step_that_is_to_run_at_most_once_is_not_repeated_by_itself(app, client, kind, durable):
    ran: list[str] = []

    def handle(message):
        try:
            yield lambda: message.step("risky", lambda: ran.append("risky"), at_most_once=True)
        except reliq.StepFailed as error:
            ran.append(error.error)

    durable(handle)
    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:  # a worker that is gone before the step has returned
        (held,) = consumer.claim()

        def interrupted() -> None:
            raise SystemExit

        with pytest.raises(SystemExit):
            held.step("risky", interrupted, at_most_once=True)
        consumer.release(held)
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert one
    assert ran == ["InterruptedError: its worker ended while it ran, and it is to run at most once"]


def test_a_robbed_run_learns_it_when_it_records_and_before_its_next_step(app, client):
    queue = app.queue("q")
    queue.send("x")
    ran = []
    with queue.consumer(lease=30) as consumer:
        (message,) = consumer.claim()
        client.delete(*client.keys("*lease:*"))
        with pytest.raises(reliq.LeaseLost):
            message.step("first", lambda: ran.append("first"))
    assert client.hlen(KEYS.followed) == 0


def test_a_robbed_run_that_was_suspended_calls_no_step(app, client):
    queue = app.queue("q")
    queue.send("x")
    ran: list[str] = []
    with queue.consumer(lease=30) as consumer:
        (message,) = consumer.claim()
        client.delete(*client.keys("*lease:*"))
        message.holder.trust.until = Moment.never()  # by the clocks, its lease may be over
        with pytest.raises(reliq.LeaseLost):
            message.step("first", ran.append, "first")
    assert ran == []


def test_a_robbed_run_that_was_suspended_does_not_pass_the_sleep_of_a_later_run(app, client):
    queue = app.queue("q")
    queue.send("x")
    monitor = Monitor(app.store, reconnect_grace=0)
    with queue.consumer(lease=30) as robbed, queue.consumer(lease=30) as other:
        (begun,) = robbed.claim()
        with pytest.raises(RunOver):
            begun.sleep("a moment", 60)
        queue.delayed.run(all=True)
        monitor.promote()
        (message,) = robbed.claim()
        client.delete(*client.keys("*lease:*"))
        monitor.scan()
        (again,) = other.claim()
        again.sleep("a moment", 60)
        with pytest.raises(RunOver):
            again.sleep("night", 60)
        message.holder.trust.until = Moment.never()  # by the clocks, its lease may be over
        with pytest.raises(reliq.LeaseLost):  # noqa: PT012  the first one reads the record
            message.sleep("a moment", 60)
            message.sleep("night", 60)


def test_typed_results_come_back_as_their_type(app):
    @dataclasses.dataclass
    class Receipt:
        number: int

    def charge(amount: int) -> Receipt:
        return Receipt(amount)

    charge.__annotations__["return"] = Receipt
    queue = app.queue("q")
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.step("charge", charge, 5) == Receipt(5)
        assert message.step("bytes", lambda: b"\x00") == b"\x00"
        assert message.step("nothing", lambda: None) is None
        consumer.release(message)
        (again,) = consumer.claim()
        assert again.step("charge", charge, 6) == Receipt(5)
        assert again.step("bytes", lambda: b"other") == b"\x00"
        assert again.step("nothing", lambda: 1) is None
        consumer.ack(again)


def test_a_function_of_a_step_is_not_kept(app):
    """The latest thousand were kept, with what they refer to: of lambdas the whole message with its body."""

    class Large:
        pass

    queue, kept = app.queue("q"), []
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        for name in ("a lambda", "an annotated one"):
            large = Large()
            kept.append(weakref.ref(large))

            def annotated(large: Any = large) -> int:
                return len(repr(large))

            message.step(name, annotated if name == "an annotated one" else lambda large=large: len(repr(large)))
        del large, annotated
        gc.collect()
        assert [one() for one in kept] == [None, None]
        consumer.ack(message)


def test_a_callable_object_that_has_no_hash_is_a_step(app):
    @dataclasses.dataclass
    class Charge:
        def __call__(self) -> str:
            return "charged"

    queue = app.queue("q")
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.step("charge", Charge()) == "charged"
        consumer.ack(message)


def test_branches_of_an_async_handler_run_beside_each_other(app, client):
    ran: list[str] = []

    async def part(name: str) -> str:
        await asyncio.sleep(0)
        ran.append(name)
        return name

    async def branch(message: reliq.Message, letter: str) -> list[str]:
        return [await message.step(f"{letter}/{number}", part, f"{letter}{number}") for number in (1, 2)]

    @app.handler("q", retry=reliq.fixed(0, limit=2))
    async def handle(message: reliq.Message) -> None:
        done = await asyncio.gather(branch(message, "a"), branch(message, "b"))
        assert [*done] == [["a1", "a2"], ["b1", "b2"]]
        if not message.failures:
            raise ValueError("once more")

    app.queue("q").send("x")
    with working_as("async", app, monitor=True):
        eventually(lambda: settled(app))
    assert sorted(ran) == ["a1", "a2", "b1", "b2"]


def flaky() -> Any:
    """A step that fails the first time."""

    def fail_once() -> None:
        if not failed:
            failed.append(1)
            raise ConnectionError("not now")

    failed: list[int] = []
    return fail_once


def test_each_failure_of_steps_in_two_branches_counts_and_each_waits_for_its_own_time(app):
    queue, tried = app.queue("q"), []

    async def fail(letter: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        tried.append((letter, time.monotonic()))
        raise ValueError(letter)

    @app.handler("q", retry=0)
    async def handle(message: reliq.Message) -> None:
        often = message.step("a/often", fail, "a", 0.05, retry=reliq.fixed(0.1, limit=9))
        twice = message.step("b/twice", fail, "b", 0.01, retry=reliq.fixed(0.6, limit=1))
        await asyncio.gather(often, twice)

    queue.send("x")
    with working_as("async", app, monitor=True):
        eventually(lambda: queue.stats().dead)
    (letter,) = queue.dead.list()
    assert "step 'b/twice' failed for good, after 2 tries: ValueError: b" in letter.errors[-1].text
    first, second = (at for one, at in tried if one == "b")
    assert second - first >= 0.6


def test_a_signal_that_is_there_is_not_held_back_by_the_steps_of_other_branches(app):
    order: list[str] = []
    queue = app.queue("q")

    @app.handler("q", retry=0)
    async def handle(message: reliq.Message) -> None:
        waited = asyncio.Event()

        async def until_waited() -> None:
            await asyncio.wait_for(waited.wait(), 20)

        async def other() -> None:
            order.append(await message.wait("go"))
            waited.set()

        await asyncio.gather(message.step("a/step", until_waited), other())

    identity = queue.send("x")
    queue.signal(identity, "go", "gone")
    with working_as("async", app, monitor=True):
        eventually(lambda: queue.stats().counters.get("acked") or queue.stats().dead)
    assert (order, queue.stats().dead) == (["gone"], 0)


@pytest.mark.parametrize("kind", ["threads", "async"])
def test_a_branch_that_is_held_back_ends_with_its_message(app, kind, monkeypatch):
    """What a step waits for is let go by the branch that waits for the step, and the time limit ends both."""
    monkeypatch.setattr(driving, "LOOK", 0.05)
    queue, ended = app.queue("q"), threading.Event()

    def note_end() -> None:
        ended.set()

    if kind == "async":

        @app.handler("q", retry=0, time_limit=0.5)
        async def handle_async(message: reliq.Message) -> None:
            lock = asyncio.Lock()

            async def sleep() -> None:
                async with lock:
                    await asyncio.sleep(0.05)
                    await message.sleep("a/nap", 60)

            try:
                await asyncio.gather(sleep(), message.step("b/step", lock.acquire))
            finally:
                note_end()
    else:

        @app.handler("q", retry=0, time_limit=0.5)
        def handle(message: reliq.Message) -> None:
            begun, slept = threading.Event(), threading.Event()

            def until_slept() -> None:
                begun.set()
                slept.wait(20)

            with ThreadPoolExecutor(1) as pool:
                pool.submit(message.step, "b/step", until_slept)
                begun.wait()
                try:
                    message.sleep("a/nap", 60)
                finally:
                    slept.set()
                    note_end()

    queue.send("x")
    with working_as(kind, app, monitor=True):
        assert ended.wait(20)
        eventually(lambda: queue.stats().dead)


@pytest.mark.parametrize("at_most_once", [False, True])
@pytest.mark.parametrize("how", ["sleep", "wait", "try again"])
@pytest.mark.parametrize("kind", ["threads", "async"])
def test_a_branch_lets_the_message_rest_when_the_steps_of_the_others_are_stored(app, kind, how, at_most_once):
    """What a step did whose result came later was lost, and the next run did it again."""
    ran: list[str] = []
    queue = app.queue("q")
    flaky_once = flaky()

    def rest(message: reliq.Message) -> Any:
        if how == "try again":
            return message.step("a/flaky", flaky_once, retry=reliq.fixed(0))
        return message.sleep("a/nap", 0.01) if how == "sleep" else message.wait("go", timeout=0.01, default=None)

    def charge() -> str:
        ran.append("charge")
        with contextlib.suppress(AssertionError):  # it is longer than the other branch needs
            eventually(lambda: queue.stats().processing == 0, timeout=0.5)
        return "charged"

    if kind == "async":

        @app.handler("q", retry=0)
        async def handle_async(message: reliq.Message) -> None:
            charged = message.step("b/charge", asyncio.to_thread, charge, at_most_once=at_most_once)
            _, done = await asyncio.gather(rest(message), charged)
            ran.append(done)
    else:

        @app.handler("q", retry=0)
        def handle(message: reliq.Message) -> None:
            with ThreadPoolExecutor(2) as pool:
                charged = pool.submit(message.step, "b/charge", charge, at_most_once=at_most_once)
                eventually(lambda: ran)
                rested = pool.submit(rest, message)
                rested.result()
                ran.append(charged.result())

    queue.send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().counters.get("acked") or queue.stats().dead)
    assert ran == ["charge", "charged"]


def test_a_branch_that_goes_on_beside_a_message_that_rests_ends_too(app):
    """It got a LeaseLost, which handlers catch, and which says that another consumer has the message."""
    app.queue("q").send("x")
    with app.queue("q").consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(RunOver, match="this run is over: its message sleeps"):
            message.sleep("nap", 60)
        asks = (lambda: message.step("next", str), lambda: message.sleep("long", 60), lambda: message.wait("go"))
        for ask in (*asks, lambda: message.link("go")):
            with pytest.raises(RunOver):
                ask()
        assert not message.holder.lives


@pytest.mark.parametrize("method", ["step", "sleep", "wait", "emit", "charge"])
@pytest.mark.parametrize("by", ["worker", "work_off"])
def test_an_async_handler_that_does_not_await_what_it_asks_for_has_failed(app, by, method):
    """It was acked, and only Python's RuntimeWarning said that the step had not run."""
    ran: list[int] = []
    arguments = {"step": ("once", ran.append, 1), "sleep": ("nap", "1h"), "wait": ("go",), "emit": (1,), "charge": (1,)}

    @app.handler("q", retry=reliq.fixed(0, limit=1))
    async def handle(message: reliq.Message) -> None:
        await message.step("first", str)
        getattr(message, method)(*arguments[method])

    app.queue("q").send("x")
    if by == "work_off":
        work_off(app)
    with working_as("async", app, monitor=True) if by == "worker" else contextlib.nullcontext():
        (letter,) = eventually(app.queue("q").dead.list)
    said = f"TypeError: the handler does not await message.{method}(), which has not run: write await before it"
    assert said in letter.last_error.text
    assert ran == []


def test_a_decorated_function_is_a_step(app):
    ran = []

    @reliq.step
    def charge(message: reliq.Message, order: int, *, times: int = 1) -> frozenset[int]:
        ran.append((message.id, order))
        return frozenset({order * times})

    queue = app.queue("q")
    one = queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert charge(message, 4, times=2) == {8}
        consumer.release(message)
        (message,) = consumer.claim()
        assert charge(message, 5) == {8}
    assert ran == [(one, 4)]


@pytest.mark.parametrize(
    "rest",
    [
        lambda one: one.sleep("a week", days=7),
        lambda one: one.step("call", divmod, 1, 0, retry=reliq.fixed("7d")),
    ],
    ids=["sleep", "step"],
)
def test_a_changed_delay_of_the_queue_does_not_end_a_sleep_or_the_delay_of_a_step(app, rest):
    """It woke messages that sleep for days, and tried steps again at once."""
    queue = app.queue("q")
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(RunOver):
            rest(message)
    queue.send("y", delay="1h")
    *_, before = queue.delayed.list()
    assert queue.change_delay(0) == 1
    assert [(one.id, one.due_at) for one in queue.delayed.list()] == [(message.id, before.due_at)]


@pytest.mark.parametrize("frees_key", [False, True])
def test_the_key_of_a_sleeping_message_is_kept_or_free(app, client, kind, durable, frees_key):
    ran: list[str] = []

    def handle(message):
        name = message.body.decode()
        if name == "first":
            yield lambda: message.sleep("night", days=1, frees_key=frees_key)
        ran.append(name)
        yield lambda: message.step("s", lambda: None)

    durable(handle)
    queue = app.queue("q")
    queue.send_many([b"first", b"second"], key="k")
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().delayed)
        if frees_key:
            eventually(lambda: ran == ["second"])
        else:
            assert queue.stats().waiting == 1
        now_due(client)
        eventually(lambda: settled(app))
    assert ran == (["second", "first"] if frees_key else ["first", "second"])


def test_a_parked_message_is_cancelled_and_purged(app, client, kind, durable):
    def handle(message):
        yield lambda: message.step("s", lambda: 1)
        yield lambda: message.wait("never", timeout="1h")

    durable(handle)
    queue = app.queue("q")
    one, *_ = queue.send_many(["a", "b", "c"])
    with working_as(kind, app, monitor=True):
        eventually(lambda: queue.stats().parked == 3)
        queue.cancel(one)
        assert queue.stats().parked == 2
        assert queue.purge() == 2
    stats = queue.stats()
    assert (stats.parked, stats.missing, stats.counters["cancelled"], stats.counters["purged"]) == (0, 0, 1, 2)
    assert not client.exists(KEYS.parked, KEYS.waits)
    with pytest.raises(reliq.SignalRefused, match="left the queue"):
        queue.signal(one, "never", 1)


def test_a_one_time_link_gives_its_signal_once(app, client):
    from reliq.features.steps.signals import SignalSteps

    paths = []

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        paths.append(message.link("approval"))
        message.wait("approval")

    queue = app.queue("q")
    queue.send("x")
    with working_as("inline", app, monitor=True):
        eventually(lambda: queue.stats().parked)
        token = paths[0].rpartition("/")[2]
        signals = SignalSteps(queue._steps.homes)
        for forged in ("", "x", token[:-4] + "AAAA", token + "A"):
            with pytest.raises(reliq.SignalRefused):
                app.store.run(signals.by_link(forged, value=True))
        assert app.store.run(signals.by_link(token, value=True)) is True
        eventually(lambda: settled(app))
    assert paths == [paths[0]] * 2
    for over in (token, as_token(b"\ngo\ns")):  # no message has an empty id, but what is counted has one in the record
        with pytest.raises(reliq.SignalRefused, match="not valid, or its message has ended"):
            app.store.run(signals.by_link(over, value=True))


def test_a_signal_without_a_queue_goes_to_the_copy_that_waits(app):
    """Copies of a published message have one id: one is a dead letter with a record, another one waits."""

    @app.handler("a")
    def fail(message: reliq.Message) -> None:
        message.step("one", lambda: None)
        raise reliq.Dead("no")

    @app.handler("b")
    def wait(message: reliq.Message) -> None:
        message.wait("go")

    for queue in ("a", "b"):
        app.subscribe(queue, "order")
    (identity,) = set(app.publish("order", "x").values())
    with working_as("inline", app, monitor=True):
        eventually(lambda: app.queue("b").stats().parked and app.queue("a").stats().dead)
        assert app.signal(identity, "go") is True
        eventually(lambda: settled(app, "b"))


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_early_signal_is_counted_once(app, partitions):
    queue = app.queue("q")
    queue.configure(partitions=partitions)
    assert [queue.signal("later", name) for name in ("go", "stop", "go")] == [True, True, False]
    assert queue.stats().counters["signalled"] == 2


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_early_signal_for_which_a_home_has_no_room_is_refused(app, partitions):
    queue = app.queue("q")
    queue.configure(partitions=partitions)
    homes = [QueueKeys(name) for name in app.store.call(ops.queue_names()) if QueueKeys(name).logical == "q"]
    later = (time.time() + 3600) * 1000
    others = [part for number in range(100_000) for part in (later, f"\n{number}")]
    app.store.call(ops.command("ZADD", homes[-1].waits, *others))
    with pytest.raises(reliq.SignalRefused, match="100,000") as caught:
        queue.signal("later", "go")
    assert caught.value.outcome == "full"
    app.store.call(ops.unlink([homes[-1].waits.encode()]))
    queue.signal("later", "go")


def test_each_visit_of_a_cycle_has_a_record_of_its_own(app, client, kind, durable):
    visits: list[str] = []
    queue = app.queue("q")

    def handle(message):
        name = yield lambda: message.step("poll", lambda: f"visit {len(visits)}")
        visits.append(name)
        yield lambda: message.sleep("rest", 0.01)
        return reliq.Again() if len(visits) < 6 else None

    durable(handle)
    queue.cycle.add("ann")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert sorted(set(visits)) == ["visit 0", "visit 2", "visit 4"], "each of them ran again after its sleep"
    nothing_is_left(client)


@pytest.mark.parametrize(("first", "then"), [("step", "sleep"), ("sleep", "step")])
def test_a_step_that_becomes_a_sleep_is_an_error_that_says_so(app, client, kind, durable, first, then):
    told: list[str] = []

    def ask(message, what):
        return (lambda: message.step("one", lambda: 1)) if what == "step" else (lambda: message.sleep("one", 0.01))

    def handle(message):
        if message.failures == 0 and not told:
            yield ask(message, first)
            told.append("recorded")
            raise ValueError("half way")
        try:
            yield ask(message, then)
        except reliq.StepsChanged as error:
            told.append(str(error))

    durable(handle, retry=reliq.fixed(0, limit=3))
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert told[1:] == [f"'one' is a {then} of this handler, and was a {first} when an earlier run recorded it"]


@pytest.mark.parametrize("retry", [None, 5])
@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.step("inner", str),
        lambda one: one.sleep("inner", 60),
        lambda one: one.wait("inner"),
    ],
    ids=["step", "sleep", "wait"],
)
def test_a_step_asks_for_nothing_inside_of_it(app, kind, durable, ask, retry):
    """It passed, until a later run found the step done, asked for no inner one, and counted the next ones otherwise."""
    ran: list[str] = []

    def handle(message):
        def outer() -> Any:
            ran.append("outer")
            return ask(message)

        yield lambda: message.step("outer", outer, retry=retry)

    durable(handle, retry=0)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        (letter,) = eventually(app.queue("q").dead.list)
    assert "'inner' is asked for inside of step 'outer'" in letter.last_error.text
    assert ran == ["outer"]


def test_a_step_may_hand_out_a_link(app):
    links = []

    @app.handler("q", retry=reliq.fixed(0, limit=1))
    def handle(message: reliq.Message) -> None:
        def mail() -> None:
            links.append(message.link("approval"))
            if len(links) == 1:
                raise ConnectionError("not now")

        message.step("mail", mail, retry=reliq.fixed(0))
        message.step("next", str)
        if not message.failures:
            raise ValueError("once more")

    app.queue("q").send("x")
    with working_as("inline", app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked"))
    assert links == links[:1] * 2


def test_a_task_that_outlives_its_step_is_not_inside_of_it(app):
    @app.handler("q", retry=0)
    async def handle(message: reliq.Message) -> None:
        begun: list[asyncio.Task[str]] = []
        done = asyncio.Event()

        async def later() -> str:
            await done.wait()
            return str(await message.step("later", lambda: "there"))

        await message.step("outer", lambda: begun.append(asyncio.create_task(later())))
        done.set()
        assert await begun[0] == "there"

    app.queue("q").send("x")
    with working_as("async", app):
        eventually(lambda: app.queue("q").stats().counters.get("acked"))


def test_a_step_of_another_message_is_not_inside_of_it(app):
    queue = app.queue("q")
    queue.send_many(["x", "y"])
    with queue.consumer() as consumer:
        one, other = consumer.claim(2)
        assert one.step("outer", lambda: other.step("inner", lambda: "there")) == "there"


def test_a_signal_without_a_queue_for_an_unknown_message_is_refused(app):
    app.queue("q").send("x")
    with pytest.raises(reliq.SignalRefused, match="no message with this id"):
        app.signal("nobody", "go")


def test_limits_of_steps_say_what_is_too_much(app, monkeypatch):
    from reliq.features.steps import model

    monkeypatch.setattr(model, "MAX_STEPS", 3)
    monkeypatch.setattr(model, "MAX_RECORD_BYTES", 1000)
    queue = app.queue("q")
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.step("1", lambda: 1)
        with pytest.raises(reliq.StepFailed, match="has 1,003 bytes, of at most 1,000"):
            message.step("large", lambda: b"x" * 1000)
        message.step("3", lambda: 3)
        with pytest.raises(reliq.InvalidMessage, match=r"number 4 of its message, of at most 3"):
            message.step("4", lambda: 4)
        with pytest.raises(reliq.InvalidMessage, match="1 to 200 printable characters"):
            message.step("a\nb", lambda: 3)
        with pytest.raises(reliq.InvalidSetting, match="step 'three' has 3: give a function"):
            message.step("three", 3)
        with pytest.raises(reliq.InvalidHandler, match="retry_on has 5, which is not an exception class"):
            message.step("again", print, retry_on=5)
        with pytest.raises(reliq.InvalidSetting, match="sleep\\(\\) has no length: give one"):
            message.sleep("s")
        with pytest.raises(reliq.InvalidSetting, match="sleep\\(\\) has no weeks"):
            message.sleep("s", weeks=1)
        wrongs: list[Any] = ["7", None, [], True]
        for wrong in wrongs:
            with pytest.raises(reliq.InvalidSetting, match=r"sleep\(days=.*\): give a number of days"):
                message.sleep("s", days=wrong)


def test_a_message_that_was_cancelled_meanwhile_does_not_rest(app, client, kind, durable):
    def handle(message):
        eventually(lambda: message.cancelled)
        yield lambda: message.wait("never")

    if kind == "async":
        return  # its run is cancelled
    durable(handle)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app, monitor=True, lease=1):
        eventually(lambda: queue.stats().processing)
        queue.cancel(one)
        eventually(lambda: settled(app))
    stats = queue.stats()
    assert (stats.parked, stats.counters["cancelled"]) == (0, 1)


@pytest.mark.parametrize("rest", [lambda one: one.wait("never"), lambda one: one.sleep("night", days=1)])
def test_a_cancellation_that_no_heartbeat_has_told_yet_ends_a_message_that_is_to_rest(app, kind, durable, rest):
    told = threading.Event()

    def handle(message):
        told.wait(20)
        assert not message.cancelled
        yield lambda: rest(message)

    durable(handle)
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app, lease=600):  # its first heartbeat is minutes away
        eventually(lambda: queue.stats().processing)
        assert queue.cancel(one).value == "told"
        told.set()
        eventually(lambda: settled(app))
    stats = queue.stats()
    assert (stats.parked, stats.delayed, stats.counters["cancelled"]) == (0, 0, 1)


def test_a_cancellation_of_an_earlier_message_with_this_id_does_not_count(app, client):
    queue = app.queue("q")
    queue.send("x", id="one")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        client.hset(KEYS.told, "one", message.enqueued_at - 1)
        with pytest.raises(RunOver):
            message.wait("go")
    assert queue.stats().parked == 1


def test_a_message_with_the_id_of_another_one_that_rests_runs_no_step_when_it_is_tried_again(app, kind, durable):
    """It ran the step in each try, and learned only when it was to store the result that this was in vain."""
    ran: list[str] = []

    def handle(message):
        yield lambda: message.step("charge", ran.append, message.body.decode())
        yield lambda: message.sleep("night", "1h")

    durable(handle, retry=reliq.fixed(0, limit=3))
    queue = app.queue("q")
    with working_as(kind, app, monitor=True):
        queue.send("first", id="order-7")
        eventually(lambda: queue.stats().delayed)
        before = time.time()
        eventually(lambda: time.time() > before + 0.002)  # they differ by the ms in which they were sent
        queue.send("second", id="order-7")
        (letter,) = eventually(queue.dead.list)
    assert "is of another message with this id: messages with steps need ids of their own" in letter.last_error.text
    assert ran == ["first", "second"]


def test_a_message_with_a_record_that_is_handed_back_goes_on_where_it_was(app, client):
    """At the end of the grace the worker hands back what its handlers still run."""
    ran: list[str] = []
    go = threading.Event()

    @app.handler("q")
    def handle(message: reliq.Message) -> None:
        message.step("first", lambda: ran.append("first"))
        if len(ran) == 1 and not go.is_set():
            go.wait(30)

    queue = app.queue("q")
    queue.send("x")
    with working_as("inline", app, grace=0.1):
        eventually(lambda: ran)
    go.set()
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        assert message.was_started
        message.step("first", lambda: ran.append("again"))
        consumer.ack(message)
    assert ran == ["first"]


def test_a_message_that_gets_on_is_not_charged_for_the_worker_that_dies_with_it(app, client):
    queue = app.queue("q")
    queue.configure(max_deliveries=1)
    queue.send("x")
    (message,) = queue.consumer().claim()
    message.step("first", lambda: 1)
    client.delete(*client.keys("*lease:*"))
    Monitor(app.store).scan()
    with queue.consumer() as consumer:
        (again,) = consumer.claim()
        assert (again.deliveries, again.redelivered) == (0, True)
        assert again.step("first", lambda: 2) == 1


def charged_once(message, ran) -> None:
    assert message.step("charge", lambda: ran.append("charge") or "receipt") == "receipt"


def vanish_with(app, client, ran) -> None:
    """A consumer that is killed after the step of its message."""
    (message,) = app.queue("q").consumer().claim()
    charged_once(message, ran)
    client.delete(*client.keys("*lease:*"))
    Monitor(app.store).scan()


def test_a_step_does_not_run_again_after_a_redrive_of_a_message_that_its_consumers_died_with(app, client):
    ran: list[str] = []
    queue = app.queue("q")
    queue.configure(max_deliveries=1)
    queue.send("x")
    vanish_with(app, client, ran)
    for _ in range(2):  # the next ones die before they ask for anything
        if queue.stats().dead:
            break
        queue.consumer().claim()
        client.delete(*client.keys("*lease:*"))
        Monitor(app.store).scan()
    assert queue.dead.redrive().redriven == 1
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        charged_once(message, ran)
    assert ran == ["charge"]


def test_a_step_does_not_run_again_after_a_run_that_asked_for_none_of_them(app, client):
    ran: list[str] = []
    tries = iter((reliq.Again(), None))

    @app.handler("q")
    def handle(message: reliq.Message) -> Any:
        again = next(tries)
        if again is None:
            charged_once(message, ran)
        return again

    app.queue("q").send("x")
    vanish_with(app, client, ran)
    with working_as("inline", app, monitor=True):
        eventually(lambda: settled(app))
    assert ran == ["charge"]


def test_a_step_does_not_run_again_in_a_message_that_a_restarted_redis_gives_back(app, client):
    """Redis lost the ack, and has the record: a consumer that lives finds the message in its list."""
    ran: list[str] = []
    queue = app.queue("q")
    queue.send("x")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        charged_once(message, ran)
        saved = {key: client.dump(key) for key in client.keys("reliq:{q}:*")}
        consumer.ack(message)
        for key, value in saved.items():
            client.restore(key, 0, value, replace=True)
        consumer._holdings["q"].steps.connected(named=True)
        (message,) = consumer.claim()
        charged_once(message, ran)
        consumer.ack(message)
    assert ran == ["charge"]


@pytest.mark.parametrize("leaves", ["expired", "released"])
def test_a_step_does_not_run_again_if_the_message_given_back_leaves_its_consumer_unrun(app, client, leaves):
    ran: list[str] = []
    queue = app.queue("q")
    queue.send("x", ttl=0.2 if leaves == "expired" else None)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        charged_once(message, ran)
        saved = {key: client.dump(key) for key in client.keys("reliq:{q}:*")}
        consumer.ack(message)
        eventually(lambda: time.time() * 1000 > message.enqueued_at + 250)
        for key, value in saved.items():
            client.restore(key, 0, value, replace=True)
        consumer._holdings["q"].steps.connected(named=True)
        if leaves == "expired":
            assert consumer.claim() == []
            assert queue.dead.redrive().redriven == 1
        else:
            consumer.release(*consumer.claim())
        (message,) = consumer.claim()
        charged_once(message, ran)
        consumer.ack(message)
    assert ran == ["charge"]


@pytest.mark.parametrize("rests", [False, True])
def test_a_run_goes_on_after_redis_has_lost_what_it_had_recorded(app, client, kind, durable, rests):
    """It was restarted with an older state. The run stores what it knows again, so that no later run repeats it."""
    ran: list[str] = []
    lost: list[bool] = []

    def handle(message):
        for name in ("one", "two", "three"):
            yield lambda name=name: message.step(name, lambda: ran.append(name))
        if not lost:
            lost.append(client.delete(KEYS.followed) == client.hdel(KEYS.config, "recorded") == 1)
        yield (lambda: message.sleep("nap", 0.01)) if rests else (lambda: message.step("four", ran.append, "four"))
        if message.failures == 0:
            raise ValueError("half way")

    durable(handle, retry=reliq.fixed(0, limit=3))
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert lost == [True]
    assert ran == ["one", "two", "three"] + ["four"] * (not rests)
    assert app.queue("q").stats().counters["acked"] == 1
    nothing_is_left(client)


def test_a_newer_message_is_the_latest_also_where_the_older_one_sleeps(app, client):
    """It frees no key: it would take the place of the newest one when it wakes."""
    queue = app.queue("q")
    latest: dict[str, Any] = {"dedup_key": "k", "replace": True}
    queue.send("1", **latest)
    handled = []
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(RunOver):
            message.sleep("night", days=1, frees_key=True)
        queue.send("2", **latest)
        held = consumer.claim()
        queue.send("3", **latest)
        now_due(client)
        Monitor(app.store).promote()
        while held := held or consumer.claim():
            handled.append(held[0].body)
            consumer.ack(held.pop())
    assert handled == [b"3"]
    assert queue.stats().counters["replaced"] == 2


class TestEarlySignalsOfPartitions:
    """Any of them may get the message."""

    @pytest.fixture
    def queue(self, app):
        queue = app.queue("q")
        queue.configure(partitions=4)
        return queue

    def test_a_call_that_has_reached_some_of_them_is_finished_by_the_next(self, app, queue):
        app.store.call(own.signal(KEYS, "m", "go", b"j1", 60.0))  # the call broke off after the first partition
        assert queue.signal("m", "go", 1) is False
        every = [QueueKeys(one) for one in app.store.call(ops.layout(KEYS)).every("q")]
        assert [app.store.call(own.signal(keys, "m", "go", b"j2", None)) for keys in every] == ["early before"] * 4

    def test_a_message_that_has_ended_takes_no_signal_though_others_kept_one(self, app, queue):
        assert queue.signal("m", "go", 1)
        queue.send("x", id="m")
        with queue.consumer() as consumer:
            (message,) = eventually(consumer.claim)
            assert message.wait("go") == 1
            consumer.ack(message)
        for signal in ("go", "stop"):
            with pytest.raises(reliq.SignalRefused, match="left the queue"):
                queue.signal("m", signal, 2)


def test_only_errors_that_are_worth_it_are_tried_again(app, client, kind, durable):
    ran: list[str] = []

    def refused() -> None:
        ran.append("refused")
        raise ValueError("no such card")

    def handle(message):
        try:
            yield lambda: message.step("card", refused, retry=5, retry_on=(ConnectionError, TimeoutError))
        except reliq.StepFailed as error:
            ran.append(error.error)

    durable(handle)
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        eventually(lambda: settled(app))
    assert ran == ["refused", "ValueError: no such card"]


def test_a_step_at_most_once_a_try_succeeds_with_the_second_try(app):
    queue = app.queue("q")
    queue.send("x")
    options: dict[str, Any] = {"at_most_once": True, "retry": reliq.fixed(0, limit=1)}

    def interrupted() -> None:
        raise SystemExit

    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(SystemExit):
            message.step("risky", interrupted, **options)
        consumer.release(message)
        (message,) = consumer.claim()
        with pytest.raises(RunOver):  # its one try was interrupted: it is tried again later
            message.step("risky", lambda: "too soon", **options)
        Monitor(app.store).promote()
        (message,) = consumer.claim()
        assert message.step("risky", lambda: "done", **options) == "done"
        assert [one.error_class for one in message.errors] == ["InterruptedError"]
        consumer.ack(message)


@pytest.mark.parametrize("retry", [None, 3])
@pytest.mark.parametrize(
    ("result", "said"), [(object(), "object, which cannot be stored"), ("x" * 2_000_000, "the limit")]
)
def test_a_step_whose_result_cannot_be_stored_is_named_and_runs_once(app, kind, durable, result, said, retry):
    """It ran again and again, with what it does elsewhere, though the same result cannot be stored the next time."""
    ran: list[int] = []

    def pay() -> Any:
        ran.append(1)
        return result

    durable(lambda message: (yield lambda: message.step("pay", pay, retry=retry)), retry=reliq.fixed(0, limit=3))
    app.queue("q").send("x")
    with working_as(kind, app, monitor=True):
        (letter,) = eventually(app.queue("q").dead.list)
    assert letter.last_error.error_class == "reliq.StepFailed"
    assert "step 'pay' returned " in letter.last_error.text
    assert said in letter.last_error.text
    assert ran == [1]


def test_a_step_whose_record_is_full_runs_once(app, monkeypatch):
    from reliq.features.steps import model

    monkeypatch.setattr(model, "MAX_RECORD_BYTES", 10)
    ran: list[int] = []

    @app.handler("q", retry=reliq.fixed(0, limit=2))
    def handle(message: reliq.Message) -> None:
        def pay() -> str:
            ran.append(1)
            return "longer than ten bytes"

        message.step("pay", pay)

    app.queue("q").send("x")
    with working_as("inline", app, monitor=True):
        (letter,) = eventually(app.queue("q").dead.list)
    assert (letter.last_error.error_class, ran) == ("reliq.StepFailed", [1])


def test_a_step_that_raises_invalid_message_is_tried_again(app):
    ran: list[int] = []

    @app.handler("q", retry=0)
    def handle(message: reliq.Message) -> None:
        def read() -> Any:
            ran.append(1)
            return message.json()

        message.step("read", read, retry=reliq.fixed(0, limit=2))

    app.queue("q").send(b"no JSON")
    with working_as("inline", app, monitor=True):
        eventually(app.queue("q").dead.list)
    assert len(ran) == 3


def test_a_step_beyond_the_limit_of_steps_does_not_run(app, monkeypatch):
    from reliq.features.steps import model

    monkeypatch.setattr(model, "MAX_STEPS", 1)
    ran: list[str] = []

    @app.handler("q", retry=reliq.fixed(0, limit=2))
    def handle(message: reliq.Message) -> None:
        for name in ("one", "two"):
            message.step(name, ran.append, name)

    app.queue("q").send("x")
    with working_as("inline", app, monitor=True):
        (letter,) = eventually(app.queue("q").dead.list)
    assert "step 'two' is number 2 of its message, of at most 1" in letter.last_error.text
    assert ran == ["one"]
