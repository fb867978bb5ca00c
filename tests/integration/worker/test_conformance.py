"""What durable execution is asked for elsewhere (docs/concepts/durable-execution.md), where no other test shows it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import reliq
from reliq.features.steps.duty import SignalTimeouts
from reliq.model.keys import QueueKeys
from reliq.testing import work_off
from tests.support.timeouts import end_timeouts
from tests.support.turns import Monitor

KEYS = QueueKeys("q")


class Story:
    """One message of q and its handler, run by run; `ran`: what happened, in order."""

    def __init__(self, app: reliq.Reliq, client: Any) -> None:
        self._app = app
        self._client = client
        self._monitor = Monitor(app.store)
        self.queue = app.queue("q")
        self.ran: list[Any] = []
        self.id = ""

    def begin(self, handle: Callable[[reliq.Message], Any], **options: Any) -> None:
        """Run a handler for a new message, until it rests or has ended; what it returns is noted."""

        @self._app.handler("q", **options)
        def run(message: reliq.Message) -> None:
            self.ran.append(("end", handle(message)))

        self.id = self.queue.send({"item": 7})
        self.go()

    def go(self) -> None:
        work_off(self._app)

    def later(self) -> None:
        """Let the time of all that sleeps, waits or is to be tried again be over, and go on."""
        for element in self._client.zrange(KEYS.delayed, 0, -1):
            self._client.zadd(KEYS.delayed, {element: 1})
        for field in self._client.hkeys(KEYS.index):
            self._client.hset(KEYS.index, field, 1)
        end_timeouts(self._client, KEYS.waits)
        self._monitor.look()
        self._monitor.promote()
        self._monitor.perform(SignalTimeouts)
        self.go()

    def signal(self, name: str, value: Any = None) -> None:
        assert self.queue.signal(self.id, name, value)
        self.go()

    def note(self, word: Any) -> Any:
        """A step: it notes that it ran, and returns the same."""
        self.ran.append(word)
        return word

    def delays(self, event: str) -> list[float]:
        """For how many seconds it was delayed each time, by its history."""
        found = self.queue.find(self.id)
        return [int(one.detail) / 1000 for one in found.history if one.name == event] if found else []

    @property
    def place(self) -> str:
        stats = self.queue.stats()
        places = {
            "delayed": stats.delayed, "parked": stats.parked, "dead": stats.dead, "ready": stats.ready,
            "handled": stats.counters.get("acked", 0),
        }  # fmt: skip
        (name,) = [name for name, count in places.items() if count]
        return name


@pytest.fixture
def story(app, client) -> Story:
    return Story(app, client)


# --- steps ---


def test_a_later_step_gets_what_an_earlier_one_has_returned(story):
    def handle(message):
        first = message.step("first", story.note, 20)
        second = message.step("second", story.note, first + 1)
        message.sleep("night", hours=1)
        return message.step("third", story.note, first + second)

    story.begin(handle)
    story.later()
    assert story.ran == [20, 21, 41, ("end", 41)]


@pytest.mark.parametrize(
    "result",
    [
        None,
        True,
        0,
        -1.5,
        "",
        "häß\n\x00",
        [],
        [1, [2, {"deep": [None]}]],
        {"a": {"b": [1, 2.5, "x", None]}},
        b"",
        b"\xff",
    ],
)
def test_results_come_back_as_they_were_also_after_a_sleep(story, result):
    def handle(message):
        before = message.step("make", lambda: result)
        message.sleep("night", hours=1)
        assert message.step("make it again", lambda: before) == result
        return before

    story.begin(handle)
    story.later()
    assert story.ran == [("end", result)]
    assert type(story.ran[0][1]) is type(result)


def test_a_large_result_comes_back(story):
    large = "x" * 900_000

    def handle(message):
        got = message.step("large", lambda: large)
        message.sleep("night", hours=1)
        return len(got)

    story.begin(handle)
    story.later()
    assert story.ran == [("end", 900_000)]


def test_an_error_of_a_step_without_a_retry_is_one_of_its_handler(story):
    def fail():
        story.note("step")
        raise ConnectionError("away")

    story.begin(lambda message: message.step("call", fail), retry=reliq.fixed(60, limit=2))
    assert story.place == "delayed"
    for _ in range(2):
        story.later()
    assert (story.ran, story.place) == (["step"] * 3, "dead")


@pytest.mark.parametrize(
    ("retry", "delays"),
    [(reliq.fixed(10, limit=3), [10, 10, 10]), (reliq.exponential(first=2, limit=3, jitter=0), [2, 6, 18])],
)
def test_a_step_waits_as_long_as_its_back_off_says(story, retry, delays):
    def fail():
        raise ConnectionError("away")

    story.queue.configure(history="1h")
    story.begin(lambda message: message.step("call", fail, retry=retry))
    while story.place == "delayed":
        story.later()
    assert (story.delays("retried"), story.place) == (delays, "dead")


# --- sleeps ---


def test_sleeps_one_after_another_each_end_once(story):
    def handle(message):
        for number in range(3):
            message.step(f"before {number}", story.note, number)
            message.sleep(f"night {number}", hours=1)

    story.begin(handle)
    for _ in range(3):
        assert story.place == "delayed"
        story.later()
    assert story.ran == [0, 1, 2, ("end", None)]
    assert story.queue.stats().counters["slept"] == 3


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ({"seconds": 90}, 90), ({"minutes": 2}, 120), ({"hours": 1}, 3600), ({"days": 1, "hours": 1}, 90_000),
        ({"duration": "90m"}, 5400),
    ],
)  # fmt: skip
def test_a_sleep_is_as_long_as_its_units_say(story, length, expected):
    story.queue.configure(history="1h")
    story.begin(lambda message: message.sleep("night", **length))
    assert (story.delays("slept"), story.place) == ([expected], "delayed")


# --- signals ---


@pytest.mark.parametrize("asked", ["ab", "ba"])
@pytest.mark.parametrize("given", ["ab", "ba"])
def test_two_signals_are_waited_for_in_any_order(story, asked, given):
    story.begin(lambda message: [message.wait(name) for name in asked])
    for name in given:
        story.signal(name, name.upper())
    assert story.ran == [("end", [name.upper() for name in asked])]


def test_a_signal_that_comes_while_a_step_runs_or_the_message_sleeps_is_there_afterwards(story):
    def handle(message):
        message.step("meanwhile", lambda: story.queue.signal(message.id, "during a step", 1))
        message.sleep("night", hours=1)
        return message.wait("during a step", timeout="1h"), message.wait("during the night", timeout="1h")

    story.begin(handle)
    story.queue.signal(story.id, "during the night", 2)
    story.later()
    assert story.ran == [("end", (1, 2))]


def test_a_message_sleeps_after_its_signal_and_keeps_it(story):
    def handle(message):
        answer = message.wait("approval")
        message.sleep("night", hours=1)
        return answer, message.wait("approval")

    story.begin(handle)
    story.signal("approval", {"by": "ann"})
    assert story.place == "delayed"
    story.later()
    assert story.ran == [("end", ({"by": "ann"}, {"by": "ann"}))]


def test_a_handler_that_caught_a_timeout_goes_on_and_catches_it_in_its_next_run_too(story):
    def handle(message):
        try:
            message.wait("approval", timeout="1h")
        except reliq.SignalTimeout:
            story.note("caught")
        message.sleep("night", hours=1)
        return message.step("after", story.note, "after")

    story.begin(handle)
    assert story.place == "parked"
    story.later()
    assert (story.ran, story.place) == (["caught"], "delayed")
    story.later()
    assert story.ran == ["caught", "caught", "after", ("end", "after")]


def test_a_timeout_that_nobody_catches_is_an_error_of_the_handler(story):
    story.begin(lambda message: message.wait("approval", timeout="1h"), retry=reliq.fixed(60, limit=0))
    story.later()
    (letter,) = story.queue.dead.list()
    assert (story.place, letter.errors[-1].error_class) == ("dead", "reliq.errors.SignalTimeout")


@pytest.mark.parametrize("caught", [True, False])
def test_a_signal_may_say_that_what_was_waited_for_has_failed(story, caught):
    def check(answer):
        if "error" in answer:
            raise reliq.Dead(answer["error"])

    def handle(message):
        with contextlib.suppress(*[reliq.Dead] * caught):
            check(message.wait("payment"))
        message.sleep("night", hours=1)

    story.begin(handle)
    story.signal("payment", {"error": "card refused"})
    story.later()
    assert story.place == ("handled" if caught else "dead")


def test_a_signal_becomes_an_object_of_a_type(story):
    class Approval(msgspec.Struct):
        by: str
        amount: int

    story.begin(lambda message: msgspec.convert(message.wait("approval"), Approval))
    story.signal("approval", {"by": "ann", "amount": 3})
    assert story.ran == [("end", Approval("ann", 3))]


@pytest.mark.parametrize("value", [None, 0, "", [1], {"a": None}, b"\x00"])
def test_a_signal_may_have_any_value_or_none(story, value):
    story.begin(lambda message: message.wait("go"))
    story.signal("go", value)
    assert story.ran == [("end", value)]


def test_a_step_hands_out_a_link_before_the_message_waits(story):
    """A submitter that fails twice is tried again; each try hands out the same link."""

    def submit(link):
        story.note(link)
        if len(story.ran) < 3:
            raise ConnectionError("mail server away")

    def handle(message):
        message.step("submit", submit, message.link("approval"), retry=reliq.fixed(60, limit=5))
        return message.wait("approval", timeout="2d")

    story.begin(handle)
    for _ in range(2):
        assert story.place == "delayed"
        story.later()
    assert story.place == "parked"
    story.signal("approval", "yes")
    links, end = story.ran[:-1], story.ran[-1]
    assert (len(links), len(set(links)), end) == (3, 1, ("end", "yes"))


def test_a_submitter_that_always_fails_ends_the_message_before_it_waits(story):
    def submit():
        raise ConnectionError("away")

    def handle(message):
        message.step("submit", submit, retry=reliq.fixed(60, limit=2))
        return message.wait("approval")

    story.begin(handle)
    for _ in range(2):
        story.later()
    assert (story.place, story.queue.stats().counters.get("parked", 0)) == ("dead", 0)


# --- conditions ---


def until(message: reliq.Message, name: str, check: Callable[[Any], Any], state: Any, limit: int = 10) -> Any:
    """Wait for a condition: the loop that docs/concepts/durable-execution.md has."""
    for number in range(limit):
        state = message.step(f"{name} {number}", check, state)
        if state["done"]:
            return state
        message.sleep(f"{name} pause {number}", minutes=5)
    raise TimeoutError(f"{name} did not come true")


@pytest.mark.parametrize("needed", [1, 3])
def test_a_condition_is_looked_at_until_it_is_true(story, needed):
    def look(state):
        return {"done": story.note(state["count"] + 1) >= needed, "count": state["count"] + 1}

    def handle(message):
        first = until(message, "job", look, {"done": False, "count": 0})
        return message.step("use it", lambda: first["count"] * 10)

    story.begin(handle)
    for _ in range(needed - 1):
        assert story.place == "delayed"
        story.later()
    assert story.ran == [*range(1, needed + 1), ("end", needed * 10)]


def test_two_conditions_one_after_another(story):
    def handle(message):
        for name in ("first", "second"):
            until(message, name, lambda state: {"done": state["tries"] > 0, "tries": state["tries"] + 1}, {"tries": 0})

    story.begin(handle)
    for _ in range(2):
        story.later()
    assert story.place == "handled"


def test_a_condition_that_never_is_true_and_a_check_that_fails_are_errors_that_may_be_caught(story):
    def fail(_: Any) -> Any:
        raise ConnectionError("away")

    def handle(message):
        try:
            until(message, "never", lambda state: state, {"done": False}, limit=2)
        except TimeoutError as error:
            story.note(str(error))
        try:
            message.step("check", fail, None, retry=0)
        except reliq.StepFailed as error:
            story.note(error.error)

    story.begin(handle)
    for _ in range(2):
        story.later()
    assert story.ran == ["never did not come true", "ConnectionError: away", ("end", None)]


# --- groups of steps, and handlers that call others ---


def test_functions_with_steps_and_sleeps_are_called_by_others(story):
    """A child context is a function; a slash in the names gives each call an order of its own."""

    def inner(message, name):
        message.step(f"{name}/inner/one", story.note, f"{name} one")
        message.sleep(f"{name}/inner/night", hours=1)
        return message.step(f"{name}/inner/two", story.note, f"{name} two")

    def outer(message, name):
        message.step(f"{name}/before", story.note, f"{name} before")
        return inner(message, name)

    def handle(message):
        results = [outer(message, "a"), outer(message, "b")]
        message.sleep("night", hours=1)
        return [*results, message.step("after", story.note, "after")]

    story.begin(handle)
    for _ in range(3):
        story.later()
    assert story.ran[:-1] == ["a before", "a one", "a two", "b before", "b one", "b two", "after"]
    assert story.ran[-1] == ("end", ["a two", "b two", "after"])


def test_an_error_in_a_group_of_steps_is_caught_outside_of_it_in_each_run(story):
    def fail():
        story.note("failed")
        raise ValueError("no")

    def group(message):
        message.step("group/good", story.note, "good")
        message.step("group/bad", fail, retry=reliq.fixed(60, limit=1))

    def handle(message):
        try:
            group(message)
        except reliq.StepFailed as error:
            result = error.step
        message.sleep("night", hours=1)
        return result

    story.begin(handle)
    for _ in range(2):
        story.later()
    assert story.ran == ["good", "failed", "failed", ("end", "group/bad")]


@pytest.mark.parametrize("answer", [{"result": {"deep": [1, None]}}, {"result": None}, {"error": "refused"}])
def test_a_handler_calls_another_one_and_waits_for_its_result(story, app, answer):
    """An invocation: a step sends the message, the other handler answers with a signal."""

    @app.handler("echo")
    def echo(message: reliq.Message) -> None:
        asked = message.json()
        story.note("echo")
        app.signal(asked["reply"], "echoed", answer, queue="q")

    def handle(message):
        message.step("invoke", lambda: app.queue("echo").send({"reply": message.id, "value": 5}) and None)
        said = message.wait("echoed")
        message.sleep("night", hours=1)
        if "error" in said:
            raise reliq.Dead(said["error"])
        return message.step("use", lambda: said["result"])

    story.begin(handle)
    story.later()
    assert story.ran[0] == "echo"
    assert story.ran[1:] == ([] if "error" in answer else [("end", answer["result"])])
    assert story.place == ("dead" if "error" in answer else "handled")


def test_items_are_mapped_in_order_and_each_step_runs_once_though_the_handler_sleeps_in_between(story):
    def handle(message):
        results = []
        for number, item in enumerate("abc"):
            results.append(message.step(f"item {number}", story.note, item))
            if number == 1:
                message.sleep("pause", hours=1)
        return results

    story.begin(handle)
    story.later()
    assert story.ran == ["a", "b", "c", ("end", ["a", "b", "c"])]


def in_branches(app: reliq.Reliq, work: Callable[[reliq.Message], Any], **options: Any) -> list[Any]:
    """Run an async handler for one message; return what it returned."""
    ended: list[Any] = []

    @app.handler("q", **options)
    async def handle(message: reliq.Message) -> None:
        ended.append(await work(message))

    app.queue("q").send("x")
    work_off(app)
    return ended


async def later_than(other: asyncio.Event | None, result: Any) -> Any:
    if other is not None:
        await other.wait()
    if isinstance(result, Exception):
        raise result
    return result


def test_results_of_branches_are_in_their_order_whichever_ends_first(app):
    async def work(message):
        first = asyncio.Event()

        async def quick() -> str:
            first.set()
            return "quick"

        return await asyncio.gather(
            message.step("slow/1", later_than, first, {"slow": 1}), message.step("quick/1", quick)
        )

    assert in_branches(app, work) == [[{"slow": 1}, "quick"]]


def test_no_branches_are_done_at_once(app):
    async def work(message):
        return await asyncio.gather(*[])

    assert in_branches(app, work) == [[]]


@pytest.mark.parametrize("tolerated", [True, False])
def test_a_failure_of_one_branch_is_tolerated_or_ends_the_run(app, tolerated):
    async def work(message):
        parts = [
            message.step(f"{number}/1", later_than, None, ValueError("no") if number == 1 else number, retry=0)
            for number in range(3)
        ]
        done = await asyncio.gather(*parts, return_exceptions=tolerated)
        return [one.error if isinstance(one, reliq.StepFailed) else one for one in done]

    ended = in_branches(app, work)
    assert ended == ([[0, "ValueError: no", 2]] if tolerated else [])
    assert app.queue("q").stats().dead == int(not tolerated)


def test_branches_in_branches(app):
    async def branch(message, name):
        return await asyncio.gather(*[message.step(f"{name}/{at}/1", later_than, None, f"{name}{at}") for at in (1, 2)])

    async def work(message):
        return await asyncio.gather(branch(message, "a"), branch(message, "b"))

    assert in_branches(app, work) == [[["a1", "a2"], ["b1", "b2"]]]


def test_a_branch_that_sleeps_ends_the_run_and_what_others_have_done_stays(story, app):
    async def work(message):
        done = asyncio.Event()

        async def other():
            await message.step("other/1", story.note, "other")
            done.set()

        async def resting():
            await done.wait()
            await message.sleep("resting/night", hours=1)
            return await message.step("resting/1", story.note, "resting")

        return await asyncio.gather(other(), resting())

    assert in_branches(app, work) == []
    assert (story.ran, story.place) == (["other"], "delayed")
    story.later()
    assert (story.ran, story.place) == (["other", "resting"], "handled")
