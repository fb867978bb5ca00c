"""No task behind the requests ends unnoticed: requests that wait for it are answered, and it runs again."""

import asyncio
import logging
import traceback
from typing import Any

import pytest

from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.model.outgoing import NewMessage
from reliq_api.access.cached import Cached
from reliq_api.background import Background
from reliq_api.consume.homes import remembered_homes
from reliq_api.consume.polls import Poll, Polls
from reliq_api.enqueue.sends import Sends
from reliq_api.joined import Joined
from tests.integration.api.serving import problem, serving
from tests.support.workers import eventually


def current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_task_that_fails_is_logged_and_called_again(caplog):
    async def scene():
        runs: list[int] = []

        async def work():
            runs.append(len(runs))
            if len(runs) < 3:
                raise RuntimeError("a fault")

        async with Background() as background:
            background.start("counting", work)
            await until(lambda: len(runs) == 2)
            await until(lambda: background.down == ["counting"])
            await until(lambda: len(runs) == 3)
            await until(lambda: background.down == [])

    asyncio.run(scene())
    assert caplog.text.count("the task 'counting' failed") == 2


def test_a_task_that_is_cancelled_from_outside_runs_again(caplog):
    async def scene():
        runs: list[asyncio.Task[Any]] = []

        async def work():
            runs.append(current_task())
            await asyncio.sleep(60)

        async with Background() as background:
            background.start("waiting", work)
            await until(lambda: runs)
            runs[0].cancel()
            await until(lambda: len(runs) == 2)
        assert all(task.done() for task in runs)

    asyncio.run(scene())
    assert caplog.text.count("was cancelled") == 1


class Failing:
    """An application whose queue has a first call that waits until it is released, and a second one that raises an
    unexpected error.
    """

    def __init__(self, error):
        self.let_go = asyncio.Event()
        self.calls = 0
        self._error = error

    def queue(self, name):
        return self

    async def send(self, message):
        self.calls += 1
        if self.calls == 1:
            await self.let_go.wait()
        return message.id

    async def send_many(self, messages):
        self.calls += 1
        if self.calls == 2:
            raise self._error
        return [message.id for message in messages]


@pytest.mark.parametrize("error", [RuntimeError("uvloop"), KeyError("x"), asyncio.CancelledError()])
def test_enqueues_that_wait_are_answered_whatever_the_sending_task_met(error, caplog):
    async def scene():
        async with Background() as background:
            queue: Any = Failing(error)
            sends = Sends(queue, Joined(background))
            messages = [NewMessage("x") for _ in range(4)]
            first = asyncio.create_task(sends.send("orders", messages[0]))
            await until(lambda: queue.calls)
            others = [asyncio.create_task(sends.send("orders", message)) for message in messages[1:]]
            await asyncio.sleep(0)
            queue.let_go.set()
            assert await first == messages[0].id
            for task, message in zip(others, messages[1:], strict=True):
                with pytest.raises(OutcomeUnknown) as raised:
                    await asyncio.wait_for(task, 5)
                assert raised.value.ids == (message.id,)
            for message in messages[:3]:  # alone, and together
                assert await asyncio.wait_for(sends.send("orders", message), 5) == message.id

    asyncio.run(scene())


def test_an_enqueue_that_fails_alone_leaves_the_queue_free():
    class Once(Failing):
        async def send(self, message):
            self.calls += 1
            if self.calls == 1:
                raise self._error
            return message.id

    async def scene():
        async with Background() as background:
            queue: Any = Once(RuntimeError("a fault"))
            sends = Sends(queue, Joined(background))
            with pytest.raises(RuntimeError):
                await sends.send("orders", NewMessage("x"))
            assert await asyncio.wait_for(sends.send("orders", NewMessage("x", id="second")), 5) == "second"

    asyncio.run(scene())


class Broken:
    """A store each of which's calls over a link of the caller's raises; others find an empty queue."""

    def __init__(self):
        self.connections = 0

    def connection(self, name):
        self.connections += 1
        return self

    async def run(self, steps, connection=None, timeout=None):
        claims = "claim" in steps.__qualname__
        steps.close()
        if connection is not None:
            raise RuntimeError("a fault")
        return [] if claims else [1]

    async def close(self):
        raise RuntimeError("closing fails too")


def test_polls_that_wait_are_answered_whatever_the_polling_task_met(caplog):
    async def never():
        await asyncio.sleep(60)

    async def scene():
        async with Background() as background:
            store: Any = Broken()
            polls, partitions = Polls(store, background), remembered_homes()("q")
            waiting = [asyncio.create_task(polls.take(Poll(partitions, 1, 15.0, 30.0), never)) for _ in range(3)]
            for task in waiting:
                with pytest.raises(OutcomeUnknown):
                    await asyncio.wait_for(task, 5)
            with pytest.raises(OutcomeUnknown):
                await asyncio.wait_for(polls.take(Poll(partitions, 1, 15.0, 30.0), never), 5)

    asyncio.run(scene())


def test_a_cached_value_that_cannot_be_read_is_an_answer_and_shown(caplog):
    async def scene():
        failing = True

        async def fetch():
            if failing:
                raise KeyError("a fault")
            return "value"

        async with Background() as background:
            value = Cached("keys", fetch, 1.0, background, kept=lambda _: 0.0)
            with pytest.raises(RedisUnavailable):
                await value.get()
            assert background.down == ["keys"]
            failing = False
            assert await value.get() == "value"
            assert background.down == []

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert "never retrieved" not in caplog.text


def test_the_error_of_a_fetch_keeps_no_request_that_it_has_refused():
    async def fetch():
        raise RedisUnavailable("away")

    async def scene():
        async with Background() as background:
            value = Cached("keys", fetch, 1.0, background, kept=lambda _: 0.0)
            errors = await asyncio.gather(*(value.get() for _ in range(3)), return_exceptions=True)
        (error,) = set(errors)
        assert len(list(traceback.walk_tb(error.__traceback__))) == 1

    asyncio.run(scene())


def test_a_fetch_for_all_requests_ends_with_the_service():
    ended = []

    async def fetch():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def scene():
        async with Background() as background:
            value = Cached("keys", fetch, 1.0, background, kept=lambda _: 0.0)
            reading = asyncio.create_task(value.get())
            await until(lambda: value._fetching)
        assert ended == [True]
        await asyncio.wait([reading])

    asyncio.run(scene())


def test_a_task_that_is_down_makes_health_red(url, monkeypatch):
    failing = True

    def fail(*_):
        if failing:
            raise KeyError("a fault")
        return 0.0
        yield

    monkeypatch.setattr("reliq_api.pressure.used_share", fail)
    with serving(url) as service:
        assert problem(service.post("/v1/queues/a/messages", json={"body": 1})) == (503, "redis_unavailable")
        assert problem(service.get("/healthz")) == (503, "not_ready")
        assert problem(service.get("/readyz")) == (503, "not_ready")
        failing = False
        assert service.post("/v1/queues/a/messages", json={"body": 1}).status_code == 201
        assert service.get("/healthz").is_success


@pytest.mark.parametrize(
    "error", [RuntimeError("unable to perform operation on <TCPTransport closed=True>"), KeyError(1)]
)
def test_whatever_a_connection_raises_requests_are_answered_and_the_next_ones_served(url, name, monkeypatch, error):
    from reliq.transport.aio_connection import AioConnection

    perform, failing = AioConnection.perform, True

    async def maybe(self, request):
        if failing:
            raise error
        return await perform(self, request)

    with serving(url) as service:
        assert service.post(f"/v1/queues/{name}/messages", json={"body": 1}).status_code == 201
        monkeypatch.setattr(AioConnection, "perform", maybe)
        assert problem(service.post(f"/v1/queues/{name}/messages", json={"body": 1}))[0] in (503, 504)
        assert problem(service.post(f"/v1/queues/{name}/leases", json={"wait": 0.1}))[0] in (503, 504)
        failing = False
        eventually(lambda: service.post(f"/v1/queues/{name}/messages", json={"body": 1}).status_code == 201)
        assert len(service.post(f"/v1/queues/{name}/leases", json={"limit": 10, "wait": 1}).json()["messages"]) == 2
