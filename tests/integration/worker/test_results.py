"""Results: what handlers return is stored in the step that acks, and given to those who wait for it."""

import asyncio
import dataclasses
import math
import threading
import time

import pydantic
import pytest
import redis

import reliq
from reliq import aio
from reliq.contract import values
from reliq.features.results import ops as own
from reliq.model.keys import QueueKeys
from tests.support.handlers import settled, working_as
from tests.support.workers import eventually, working

KEYS = QueueKeys("q")


def handler(app, kind, function, **options):
    async def run_async(message: reliq.Message) -> object:
        return function(message)

    app.handler("q", result="1h", **options)(run_async if kind == "async" else function)


def test_what_a_handler_returns_is_its_result(app, kind):
    handler(app, kind, lambda message: None if message.json() == 3 else {"double": 2 * message.json()})
    queue = app.queue("q")
    ids = queue.send_many(range(1500))
    with working_as(kind, app):
        eventually(lambda: settled(app))
    assert [queue.result(one) for one in ids[:5]] == [{"double": 0}, {"double": 2}, {"double": 4}, None, {"double": 8}]
    assert queue.result(ids[-1]) == {"double": 2998}
    assert queue.result(ids[-1]) == {"double": 2998}  # reading it does not take it


@dataclasses.dataclass
class Total:
    sum: int


@pytest.mark.parametrize(
    ("value", "result"), [(b"\x00raw", b"\x00raw"), ("text", "text"), (Total(3), {"sum": 3}), ([], []), (False, False)]
)
def test_a_result_is_json_or_bytes(app, value, result):
    handler(app, "inline", lambda message: value)
    one = app.queue("q").send("x")
    with working(app):
        assert app.queue("q").result(one, wait=20) == result


class Model(pydantic.BaseModel):
    value: float
    empty: str | None = None


class Named(Model, ser_json_inf_nan="strings"):
    pass


class Constants(Model, ser_json_inf_nan="constants"):
    @classmethod
    def of(cls, value):
        return cls(value=value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "of", [float, lambda x: {"a": [x, None]}, Total, lambda x: Model(value=x), lambda x: [Model(value=x)], Constants.of]
)
def test_nan_and_infinity_are_a_failure_of_the_handler_and_never_read_as_none(app, number, of):
    handler(app, "inline", lambda message: of(number), retry=lambda failures, error: None)
    one = app.queue("q").send("x")
    with working(app), pytest.raises(reliq.HandlerFailed, match="NaN or infinite, which JSON does not have"):
        app.queue("q").result(one, wait=20)


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"a": None, "b": [1.5, "null", "NaN"]}, {"a": None, "b": [1.5, "null", "NaN"]}),
        (Model(value=1.5), {"value": 1.5, "empty": None}),
        (
            [Model(value=1.5), {"of": Model(value=2)}],
            [{"value": 1.5, "empty": None}, {"of": {"value": 2, "empty": None}}],
        ),
        (Named(value=math.nan), {"value": "NaN", "empty": None}),
    ],
)
def test_none_in_a_result_is_none(app, value, result):
    handler(app, "inline", lambda message: value)
    one = app.queue("q").send("x")
    with working(app):
        assert app.queue("q").result(one, wait=20) == result


def test_waiting_takes_a_few_commands_and_ends_with_the_result(app, client):
    handler(app, "inline", lambda message: "done")
    queue, results = app.queue("q"), []
    one = queue.send("x")
    waiters = [threading.Thread(target=lambda: results.append(queue.result(one, wait=30))) for _ in range(3)]
    with pytest.raises(reliq.NoResult):
        queue.result(one)  # the server knows the scripts from now on
    client.config_resetstat()
    for waiter in waiters:
        waiter.start()
    eventually(lambda: client.info("clients")["blocked_clients"] == 3)
    waited = client.info("commandstats")
    assert waited["cmdstat_evalsha"]["calls"] == 6  # the result, and the dead letter of that id
    assert waited["cmdstat_xread"]["calls"] == 3
    with working(app):
        for waiter in waiters:
            waiter.join(timeout=20)
    assert results == ["done"] * 3


def test_a_result_is_awaited_with_asyncio(app, url):
    handler(app, "async", lambda message: message.json() + 1)

    async def ask() -> list[object]:
        async with aio.Reliq(url) as other:
            queue = other.queue("q")
            ids = await queue.send_many(range(10))
            return await asyncio.gather(*(queue.result(one, wait="20s") for one in ids))

    with working(app):
        assert asyncio.run(ask()) == list(range(1, 11))


def test_any_number_of_tasks_await_results_by_one_connection(app, url, client):
    handler(app, "async", lambda message: message.json() + 1)
    others = client.info("clients")["connected_clients"]  # of earlier tests

    async def ask() -> list[object]:
        async with aio.Reliq(url) as other:
            queue = other.queue("q")
            ids = await queue.send_many(range(500))
            asked = asyncio.gather(*(queue.result(one, wait="20s") for one in ids))
            await asyncio.to_thread(eventually, lambda: client.info("clients")["blocked_clients"] == 1)
            ((read, _),) = other.store._shared_reads.values()
            await asyncio.to_thread(eventually, lambda: len(read._waiting) == len(ids))
            assert client.info("clients")["connected_clients"] < others + 100
            with working(app):
                answers: list[object] = await asked
            assert not other.store._shared_reads
            return answers

    assert asyncio.run(ask()) == list(range(1, 501))


def test_one_who_ends_its_wait_leaves_the_others(app, url):
    handler(app, "async", lambda message: "done")

    async def ask() -> None:
        async with aio.Reliq(url) as other:
            queue = other.queue("q")
            one, two = await queue.send_many(range(2))
            first = asyncio.create_task(queue.result(one, wait=30))
            others = [asyncio.create_task(queue.result(one, wait=30)) for one in (one, two)]
            with pytest.raises(reliq.NoResult):
                await queue.result(two, wait=0.05)
            first.cancel()
            with working(app):
                assert await asyncio.gather(*others) == ["done"] * 2
            assert first.cancelled()

    asyncio.run(ask())


@pytest.fixture
def hasty(face, url, monkeypatch):
    """An application whose sockets wait little longer than a command that blocks, and which repeats hardly anything."""
    monkeypatch.setattr(values, "SOCKET_MARGIN", 0.5)
    return face(url, send_timeout=0.2)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_wait_longer_than_the_timeout_of_a_socket_ends_without_a_result(hasty, app, partitions):
    app.queue("q").configure(partitions=partitions)
    with pytest.raises(reliq.NoResult, match="no_such_message"):
        hasty.queue("q").result("no_such_message", wait=values.BLOCK + values.SOCKET_MARGIN + 0.5)


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_result_that_comes_after_the_timeout_of_a_socket_is_answered(hasty, app, client, partitions):
    handler(app, "inline", lambda message: "late")
    app.queue("q").configure(partitions=partitions)
    one = app.queue("q").send("x")

    def work_late():
        until = time.monotonic() + values.BLOCK + values.SOCKET_MARGIN + 0.2
        eventually(lambda: time.monotonic() > until and client.exists(KEYS.awaited) == (partitions == 1))
        with working(app):
            eventually(lambda: settled(app))

    worker = threading.Thread(target=work_late)
    worker.start()
    assert hasty.queue("q").result(one, wait=30) == "late"
    worker.join()


def test_a_server_that_goes_away_during_a_wait_leaves_nothing_uncertain(url, monkeypatch):
    with reliq.Reliq(url, send_timeout=0.2) as app:
        connection = app.store.connection()

        def refuse(raw, count):
            raise redis.ConnectionError("gone")

        monkeypatch.setattr("reliq.transport.connection.read_replies", refuse)
        for question in (own.answered(KEYS, "x", b"0-0", 0.1), own.result(KEYS, "x", 1.0), own.last_answer(KEYS)):
            with pytest.raises(reliq.RedisUnavailable, match="cannot be reached"):
                app.store.call(question, connection)


def test_a_dead_message_answers_its_error(app, kind):
    def fail(message):
        raise ValueError("no such order")

    handler(app, kind, fail, retry=reliq.fixed("1ms", limit=0))
    queue = app.queue("q")
    one = queue.send("x")
    with working_as(kind, app), pytest.raises(reliq.HandlerFailed, match="no such order") as failed:
        queue.result(one, wait=20)
    assert failed.value.reason == "max_failures"
    assert failed.value.error == "ValueError: no such order"


def test_a_message_without_a_result_says_so(app):
    queue = app.queue("q")
    with pytest.raises(reliq.NoResult, match=r'@app.handler\(.q., result="1h"\)'):
        queue.result("unknown", wait=0.05)
    with pytest.raises(reliq.InvalidName):
        queue.result("a b")
    with pytest.raises(reliq.InvalidSetting, match="result is 0"):
        app.handler("q", result=0)(lambda message: None)


def test_what_cannot_be_stored_is_a_failure_of_the_handler(app):
    handler(app, "inline", lambda message: object(), retry=reliq.fixed("1ms", limit=0))
    queue = app.queue("q")
    one = queue.send("x")
    with working(app), pytest.raises(reliq.HandlerFailed, match=r"the handler returned .*cannot be stored as a result"):
        queue.result(one, wait=20)


def test_a_guarded_handler_has_a_result_too(app, client):
    handler(app, "inline", lambda message: message.json(), once=True)
    queue = app.queue("q")
    with working(app):
        assert queue.result(queue.send(7, id="a"), wait=20) == 7


def test_who_waits_for_a_skipped_duplicate_learns_it_at_once(app, kind):
    handler(app, kind, lambda message: message.json(), once="order")
    queue = app.queue("q")
    with working_as(kind, app):
        first = queue.send(7, headers={"order": "1"})
        assert queue.result(first, wait=20) == 7
        second = queue.send(8, headers={"order": "1"})
        with pytest.raises(reliq.NoResult, match=rf"{second} of 'q' was skipped as a duplicate \(once=\)"):
            queue.result(second, wait=60)
    assert queue.result(first) == 7


def test_the_result_of_a_message_that_came_again_stays(app):
    handler(app, "inline", lambda message: message.json(), once=True)
    queue = app.queue("q")
    with working(app):
        assert queue.result(queue.send(7, id="a"), wait=20) == 7
        queue.send(8, id="a")
        eventually(lambda: queue.stats().counters["acked"] == 2)
    assert queue.result("a") == 7


def test_again_has_no_result(app):
    tries = []

    def run(message):
        tries.append(1)
        return reliq.Again() if len(tries) < 3 else len(tries)

    handler(app, "inline", run)
    queue = app.queue("q")
    with working(app):
        assert queue.result(queue.send("x"), wait=20) == 3


def test_results_are_kept_for_between_one_and_two_times_as_long(app, client):
    app.handler("q", result="100s")(lambda message: message.json())
    queue = app.queue("q")

    def run(value):
        one = queue.send(value)
        with working(app):
            queue.result(one, wait=20)
        return one

    def age(seconds):
        for field in ("", "  "):
            client.hincrby(KEYS.results, field, -1000 * seconds)

    first = run(1)
    age(90)
    second = run(2)
    assert [queue.result(one) for one in (first, second)] == [1, 2]
    age(20)
    third = run(3)
    assert [queue.result(one) for one in (first, second, third)] == [1, 2, 3]
    age(110)
    run(4)
    assert queue.result(third) == 3
    with pytest.raises(reliq.NoResult):
        queue.result(first)
    assert 100_000 < client.pttl(KEYS.results) <= 200_000
    assert 0 < client.pttl(KEYS.earlier_results) <= 200_000


def test_a_robbed_worker_stores_no_result(app, client):
    """The result is written in the step that removes the message, and only if that removes it."""
    runs = []

    def run(message):
        runs.append(message.redelivered)
        if not message.redelivered:
            client.delete(*client.keys("*lease:*"))
            eventually(lambda: app.queue("q").stats().counters.get("reclaimed"))
            return "of the robbed one"
        return "of its successor"

    app.handler("q", result="1h")(run)
    one = app.queue("q").send("x")
    with working(app, monitor=True):
        assert app.queue("q").result(one, wait=20) == "of its successor"
    assert runs == [False, True]


def test_a_full_redis_still_lets_results_be_read(app, client):
    app.handler("q", result="1h")(lambda message: message.json())
    queue = app.queue("q")
    one = queue.send(1)
    with working(app):
        queue.result(one, wait=20)
    client.config_set("maxmemory", 1)
    try:
        assert queue.result(one, wait=1) == 1
        with pytest.raises(reliq.NoResult):
            queue.result("other", wait=0.1)
    finally:
        client.config_set("maxmemory", 0)
