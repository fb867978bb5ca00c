"""Taskiq's broker: results, retries with Taskiq's own middleware, delays, acks beside a waiting claim, kills."""

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from taskiq import InMemoryBroker, SmartRetryMiddleware, TaskiqMessage, TaskiqMiddleware
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

import reliq
from reliq.aio.consumer import Consumer
from reliq.contract import values
from reliq.contrib.taskiq import ReliqBroker
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from tests.support.workers import ROOT, eventually

#: The code of a worker.
WORK = (
    "import asyncio; from taskiq.api import run_receiver_task\n"
    "from tests.integration.frameworks.taskiq_app import broker\n"
    "asyncio.run(run_receiver_task(broker, run_startup=True))"
)


def environment(url: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "api"), str(ROOT / "monitor")])
    return {**os.environ, "PYTHONPATH": path, "RELIQ_URL": url}


@contextlib.asynccontextmanager
async def receiving(broker: ReliqBroker) -> AsyncIterator[None]:
    """A worker of this broker in the tasks of this event loop."""
    broker.is_worker_process = True
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker))
    try:
        yield
    finally:
        receiver.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiver
        await broker.shutdown()


def made(url: str, **options: Any) -> ReliqBroker:
    return ReliqBroker(url, **options).with_result_backend(InMemoryBroker().result_backend)


async def until(condition: Any) -> Any:
    return await asyncio.to_thread(eventually, condition, 20)


def test_tasks_run_and_are_acked_after_their_result_is_saved(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker = made(url)

        @broker.task
        async def double(number: int) -> int:
            return 2 * number

        async with receiving(broker):
            tasks = [await double.kiq(number) for number in range(50)]
            results = [await task.wait_result(timeout=20) for task in tasks]
            assert [one.return_value for one in results] == [2 * number for number in range(50)]
            await until(lambda: app.queue("taskiq").stats().counters.get("acked") == 50)
        assert (app.queue("taskiq").stats().processing, app.queue("taskiq").stats().consumers) == (0, 0)

    asyncio.run(story())


def test_an_ack_does_not_wait_for_a_claim_that_waits(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker = made(url)

        @broker.task
        async def slow() -> None:
            await asyncio.sleep(0.3)

        async with receiving(broker):
            times = []
            for _ in range(3):
                acked = app.queue("taskiq").stats().counters.get("acked", 0)
                await (await slow.kiq()).wait_result(timeout=20)
                begun = time.monotonic()
                await until(lambda acked=acked: app.queue("taskiq").stats().counters.get("acked", 0) > acked)
                times.append(time.monotonic() - begun)
            assert min(times) < 0.2

    asyncio.run(story())


def test_retries_of_taskiq_wait_among_the_delayed_messages(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker = made(url).with_middlewares(SmartRetryMiddleware(default_delay=0.3))
        runs: list[float] = []

        @broker.task(retry_on_error=True, max_retries=3)
        async def flaky() -> str:
            runs.append(time.monotonic())
            if len(runs) < 3:
                raise ValueError("not yet")
            return "done"

        async with receiving(broker):
            task = await flaky.kiq()
            await until(lambda: len(runs) == 1)
            await until(lambda: app.queue("taskiq").stats().delayed == 1)
            await until(lambda: len(runs) == 3)
            await until(lambda: app.queue("taskiq").stats().processing == 0)
            assert runs[1] - runs[0] > 0.25
            assert (await task.get_result()).return_value == "done"

    asyncio.run(story())


def test_labels_delay_and_expire(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker = made(url)

        @broker.task
        async def nothing() -> None: ...

        await broker.startup()
        await nothing.kicker().with_labels(delay=60).kiq()
        await nothing.kicker().with_labels(ttl=0.001, priority="high").kiq()
        await broker.shutdown()

    asyncio.run(story())
    assert (app.queue("taskiq").stats().delayed, app.queue("taskiq").stats().ready) == (1, 1)
    with app.queue("taskiq").consumer() as consumer:
        eventually(lambda: not consumer.claim() and app.queue("taskiq").stats().dead == 1)


def test_labels_count_for_the_limits_of_the_queue(app: reliq.Reliq, url: str) -> None:
    app.queue("taskiq").configure(rate="1/h", burst=100, key_concurrency=1)

    async def story() -> None:
        broker = made(url)

        @broker.task
        async def nothing() -> None: ...

        await broker.startup()
        for tenant, cost in (("a", 40), ("a", 0), ("b", 60), ("c", 1)):
            await nothing.kicker().with_labels(limit_key=tenant, cost=cost).kiq()
        await broker.shutdown()

    asyncio.run(story())
    with app.queue("taskiq").consumer() as consumer:
        eventually(lambda: app.queue("taskiq").stats().ready == 4)
        assert [consumer.claim() != [] for _ in range(3)] == [True, True, False]


def test_labels_may_be_of_other_types_than_texts(app: reliq.Reliq, url: str) -> None:
    """Taskiq makes texts of them, but for those that a middleware sets."""

    class Labelling(TaskiqMiddleware):
        def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
            message.labels["key"] = 7
            return message

    async def story() -> None:
        broker = made(url)

        @broker.task
        async def nothing() -> None: ...

        await broker.startup()
        none = dict.fromkeys(("key", "limit_key", "priority", "delay", "ttl", "cost"))
        await nothing.kicker().with_labels(**none).kiq()  # type: ignore[arg-type]
        await nothing.kicker().with_labels(delay="1h", cost=2.0, limit_key=5, other=["a"]).kiq()  # type: ignore[arg-type]
        broker.add_middlewares(Labelling())
        await nothing.kiq()
        with pytest.raises(SendTaskError) as refused:
            await nothing.kicker().with_labels(delay="soon").kiq()
        assert "delay is 'soon': write seconds" in str(refused.value.__cause__)
        await broker.shutdown()

    asyncio.run(story())
    (delayed,) = app.queue("taskiq").delayed.list()
    assert (delayed.limit_key, delayed.cost) == ("5", 2)
    with app.queue("taskiq").consumer() as consumer:
        assert [one.key for one in consumer.claim(10)] == ["", "7"]


def exhausted(_: int) -> None:
    """Raise StopIteration."""
    next(iter(()))


def test_a_task_that_raises_stop_iteration_has_failed(app: reliq.Reliq, url: str) -> None:
    """Before Python 3.12, the future that taskiq waits for never ends."""

    async def story() -> None:
        broker = made(url)
        stop = broker.task(exhausted)

        async with receiving(broker):
            task = await stop.kiq(3)
            result = await task.wait_result(timeout=20)
            assert repr(result.error) == "RuntimeError('task raised StopIteration')"
            await until(lambda: app.queue("taskiq").stats().counters.get("acked") == 1)
            found = broker.find_task(stop.task_name)
            assert found is not None
            function = pickle.loads(pickle.dumps(found.original_func))  # as a process pool does
            with pytest.raises(RuntimeError, match="task raised StopIteration"):
                function(3)

    asyncio.run(story())


def test_a_redis_that_refuses_claims_is_asked_again_and_logged_once(
    app: reliq.Reliq, url: str, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    claims: list[float] = []
    claim = Consumer.claim

    async def counted(*arguments: Any, **options: Any) -> Any:
        claims.append(time.monotonic())
        return await claim(*arguments, **options)

    async def story() -> None:
        broker = made(url, monitor=False)

        @broker.task
        async def nothing() -> str:
            return "done"

        client.set("reliq:{taskiq}:messages", "of another application")
        async with receiving(broker):
            await until(lambda: len(claims) > 3)
            client.delete("reliq:{taskiq}:messages")
            task = await nothing.kiq()
            assert (await task.wait_result(timeout=20)).return_value == "done"
        assert claims[3] - claims[0] > 2.9 * values.RECONNECT_PAUSE

    monkeypatch.setattr(Consumer, "claim", counted)
    asyncio.run(story())
    failed, over = (record.getMessage() for record in caplog.records if record.name == "reliq.taskiq")
    assert failed.startswith("claiming from taskiq: ")
    assert over.startswith("claiming from taskiq: works again after ")


def test_a_worker_that_stops_acks_its_running_tasks_and_gives_back_the_others(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker, runs = made(url, prefetch=3), []

        @broker.task
        async def slow(number: int) -> None:
            runs.append(number)
            await asyncio.sleep(0.5)

        await broker.startup()
        for number in range(3):
            await slow.kiq(number)
        stop = asyncio.Event()
        receiver = asyncio.create_task(Receiver(broker, max_async_tasks=1, run_startup=False).listen(stop))
        await until(lambda: runs)
        stop.set()
        await receiver
        await until(lambda: app.queue("taskiq").stats().counters.get("acked") == len(runs))
        assert app.queue("taskiq").stats().processing == 0
        await broker.shutdown()
        assert app.queue("taskiq").stats().ready == 3 - len(runs)
        assert app.queue("taskiq").stats().consumers == 0

    asyncio.run(story())


def test_an_ack_is_repeated_until_redis_is_back(
    app: reliq.Reliq, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    acks: list[float] = []
    ack = Consumer.ack

    async def failing_twice(*arguments: Any) -> None:
        acks.append(time.monotonic())
        if len(acks) < 3:
            raise reliq.RedisUnavailable("away")
        await ack(*arguments)

    async def story() -> None:
        broker = made(url)

        @broker.task
        async def nothing() -> None: ...

        async with receiving(broker):
            await nothing.kicker().with_labels(key="one").kiq()
            await nothing.kicker().with_labels(key="one").kiq()
            await until(lambda: app.queue("taskiq").stats().counters.get("acked") == 2)

    monkeypatch.setattr(Consumer, "ack", failing_twice)
    asyncio.run(story())
    failed, over = (record.getMessage() for record in caplog.records if record.name == "reliq.taskiq")
    assert failed == "acking: away"
    assert over.startswith("acking: works again after ")


class Failing(TaskiqMiddleware):
    """A middleware that fails around the runs of a task, a number of times at one of its hooks."""

    def __init__(self, hook: str, times: int) -> None:
        super().__init__()
        self._hook, self._times = hook, times

    def _fail(self, hook: str) -> None:
        if hook == self._hook and self._times:
            self._times -= 1
            raise ConnectionError("no tracing")

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        self._fail("pre_execute")
        return message

    def on_error(self, *_: Any) -> None:
        self._fail("on_error")


@pytest.mark.parametrize("hook", ["pre_execute", "on_error"])
def test_a_task_whose_middleware_raises_is_tried_again(
    app: reliq.Reliq, url: str, hook: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Taskiq acks it no more: its message, and those of its key, would wait for the end of the worker."""
    monkeypatch.setattr("reliq.contrib.taskiq._BACKOFF", reliq.fixed(0.1, limit=2))

    async def story() -> None:
        broker = made(url).with_middlewares(Failing(hook, 2))

        @broker.task
        async def work(how: str) -> str:
            if how == "on_error":
                raise ValueError("it fails")
            return "done"

        async with receiving(broker):
            await work.kicker().with_labels(key="one").kiq(hook)
            task = await work.kicker().with_labels(key="one").kiq("well")
            assert (await task.wait_result(timeout=20)).return_value == "done"
            await until(lambda: app.queue("taskiq").stats().counters.get("acked") == 2)

    asyncio.run(story())
    assert app.queue("taskiq").stats().counters["retried"] == 2
    said = [record.getMessage() for record in caplog.records if record.name == "reliq.taskiq"]
    assert [" is tried again in 0.1 s" in one for one in said] == [True, True]


def test_a_task_whose_middleware_always_raises_becomes_a_dead_letter(
    app: reliq.Reliq, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reliq.contrib.taskiq._BACKOFF", reliq.fixed(0.1, limit=1))

    async def story() -> None:
        broker = made(url).with_middlewares(Failing("pre_execute", 99))

        @broker.task
        async def nothing() -> None: ...

        async with receiving(broker):
            await nothing.kiq()
            await until(lambda: app.queue("taskiq").stats().dead)

    asyncio.run(story())
    (letter,) = app.queue("taskiq").dead.list()
    assert (letter.failures, letter.last_error and letter.last_error.text) == (2, "ConnectionError: no tracing")


@pytest.mark.parametrize("body", [b"junk", b'{"task_name": "nothing"}'])
def test_a_message_that_taskiq_cannot_read_becomes_a_dead_letter(
    app: reliq.Reliq, url: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Taskiq itself acks it."""

    async def story() -> None:
        broker = made(url)

        @broker.task
        async def nothing() -> None: ...

        async with receiving(broker):
            await broker.queue.send(body)
            task = await nothing.kiq()
            await task.wait_result(timeout=20)
            await until(lambda: app.queue("taskiq").stats().dead)

    asyncio.run(story())
    (letter,) = app.queue("taskiq").dead.list()
    assert (letter.body, letter.reason) == (body, "rejected")
    assert letter.last_error is not None
    assert "cannot be read as a task: " in letter.last_error.text
    assert f"unreadable id={letter.id}: " in caplog.text


def test_a_task_that_a_worker_does_not_know_waits_for_one_that_does(
    app: reliq.Reliq, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling deployment: taskiq itself acks it, and says that it is not found."""
    monkeypatch.setattr("reliq.contrib.taskiq._BACKOFF", reliq.fixed(0.1, limit=99))

    async def story() -> None:
        newer, older = made(url), made(url)

        @newer.task(task_name="new")
        async def new() -> str:
            return "done"

        async with receiving(older):
            task = await new.kiq()
            await until(lambda: app.queue("taskiq").stats().counters.get("retried"))
        async with receiving(newer):
            assert (await task.wait_result(timeout=20)).return_value == "done"

    asyncio.run(story())


def test_only_the_task_that_kills_its_workers_becomes_a_dead_letter(app: reliq.Reliq, url: str, tmp_path: Path) -> None:
    """Though another one runs for longer, and was sent before."""
    app.queue("taskiq").configure(max_deliveries=1)
    kick = (
        "import asyncio; from tests.integration.frameworks.taskiq_app import die, note\n"
        f"async def both():\n    await note.kiq({str(tmp_path / 'notes')!r}, 'slow', 1.0)\n    await die.kiq()\n"
        "asyncio.run(both())"
    )
    subprocess.run([sys.executable, "-c", kick], env=environment(url), cwd=ROOT, check=True)

    def wait_for(worker: "subprocess.Popen[bytes]") -> None:
        eventually(lambda: worker.poll() is not None or app.queue("taskiq").stats().dead, timeout=60)

    deaths = 0
    while not app.queue("taskiq").stats().dead:
        worker = subprocess.Popen([sys.executable, "-c", WORK], env=environment(url), cwd=ROOT)
        try:
            wait_for(worker)
        finally:
            deaths += worker.poll() is not None
            worker.kill()
            worker.wait()
    (letter,) = app.queue("taskiq").dead.list()
    assert (letter.headers["task"], deaths) == ("die", 2)
    assert app.queue("taskiq").stats().counters["acked"] == 1


def test_a_suspended_worker_starts_no_task_that_others_have_run(app: reliq.Reliq, url: str) -> None:
    async def story() -> None:
        broker = made(url, lease=1, prefetch=3)
        queue = app.queue("taskiq")
        tasks = [TaskiqMessage(task_id=one, task_name=one, labels={}, args=[], kwargs={}) for one in "abcd"]
        *first, latest = [broker.formatter.dumps(one).message for one in tasks]
        queue.send_many(first)
        started = broker.listen()
        await anext(started)
        # Nothing else of this loop runs meanwhile, as if it were suspended.
        eventually(lambda: queue.stats().ready == 3, 20)
        with queue.consumer() as other:
            other.ack(*other.claim(3))
        queue.send(latest)
        assert (await asyncio.wait_for(anext(started), 20)).data == latest
        await started.aclose()
        await broker.shutdown()

    with MonitorThread(Store(url), reconnect_grace=0):
        asyncio.run(story())


def test_a_killed_worker_gives_its_task_to_another(app: reliq.Reliq, url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    kick = (
        "import asyncio; from tests.integration.frameworks.taskiq_app import broker, note\n"
        f"asyncio.run(note.kiq({str(notes)!r}, 'task', 3.0))"
    )
    workers = [subprocess.Popen([sys.executable, "-c", WORK], env=environment(url), cwd=ROOT) for _ in range(2)]
    try:
        subprocess.run([sys.executable, "-c", kick], env=environment(url), cwd=ROOT, check=True)
        eventually(lambda: notes.exists() and notes.read_text(), timeout=30)
        workers[0].kill()
        workers[0].wait()
        eventually(lambda: "end task" in notes.read_text(), timeout=30)
        eventually(lambda: app.queue("taskiq").stats().counters.get("acked") == 1)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert app.queue("taskiq").stats().ready == 0
