"""reliq.testing: applications tested without a server, and on one."""

import asyncio
import contextvars
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import time_machine

import reliq
import reliq.aio
from reliq.embedded import EmbeddedRedis
from reliq.errors import InvalidSetting, MissingExtra
from reliq.runtime import tracing
from reliq.testing import Bench, fake, work_off
from tests.support.workers import eventually

ROOT = Path(__file__).parents[2]

pytest_plugins = ["reliq.testing.fixtures"]


@pytest.fixture
def shop() -> reliq.Reliq:
    return fake(reliq.Reliq())


def test_a_handler_runs_and_its_message_is_gone(shop):
    handled = []
    shop.handler("orders")(lambda message: handled.append(message.json()))
    shop.queue("orders").send_many([{"order": 1}, {"order": 2}])
    assert work_off(shop) == 2
    assert handled == [{"order": 1}, {"order": 2}]
    stats = shop.queue("orders").stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 2)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_that_runs_once_does_so_here_too(shop, kind):
    handled = []

    def ship(message):
        handled.append(message.id)

    async def ship_async(message):
        ship(message)

    shop.handler("orders", once=True)(ship if kind == "def" else ship_async)
    for _ in range(2):
        shop.queue("orders").send("x", id="mine")
        assert work_off(shop) == 1
    assert handled == ["mine"]
    assert shop.queue("orders").stats().counters["acked"] == 2


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_progress_checkpoints_and_results_are_those_of_a_worker(offline, kind):
    shop = reliq.Reliq()

    if kind == "def":

        @shop.handler("orders", retry=reliq.fixed("1m", limit=1), result="1h")
        def ship(message: reliq.Message) -> object:
            if message.state:
                return message.state
            message.progress(0.5, "half")
            message.checkpoint({"page": 7})
            raise ValueError
    else:

        @shop.handler("orders", retry=reliq.fixed("1m", limit=1), result="1h")
        async def ship_async(message: reliq.Message) -> object:
            if message.state:
                return message.state
            await message.progress(0.5, "half")
            await message.checkpoint({"page": 7})
            raise ValueError

    bench, orders = offline(shop), shop.queue("orders")
    one = orders.send("x")
    assert bench.work_off() == 1
    found = orders.find(one)
    assert found and found.progress
    assert (found.progress.fraction, found.progress.text) == (0.5, "half")
    assert (bench.travel("2m"), bench.work_off()) == (1, 1)
    assert orders.result(one) == {"page": 7}
    assert orders.find(one) is None


def test_what_follows_a_batch_is_sent_when_its_messages_have_ended(shop):
    followed = []
    shop.handler("orders", retry=reliq.fixed("1m", limit=0))(lambda message: 1 / message.json())
    shop.handler("reports")(lambda message: followed.append((message.body, message.headers["batch-handled"])))
    with shop.batch(on_done=("reports", "done"), on_dead=("reports", "dead")) as batch:
        batch.send_many("orders", [1, 2, 0])
        with batch.batch(on_done=("reports", "inner")) as inner:
            inner.send("orders", 3)
    assert work_off(shop) == 6
    assert followed == [(b"inner", "1"), (b"dead", "3")]  # those of the inner batch count too
    assert shop.batches() == []


def test_the_latest_wins_and_a_debounced_message_stays_delayed(shop):
    handled = []
    shop.handler("orders")(lambda message: handled.append(message.body))
    for number in range(3):
        shop.queue("orders").send(str(number), dedup_key="k", replace=True)
        shop.queue("orders").send(str(number), dedup_key="other", replace=True, debounce="1m", at_most="1h")
    assert work_off(shop) == 1
    assert handled == [b"2"]
    stats = shop.queue("orders").stats()
    assert (stats.delayed, stats.counters["replaced"]) == (1, 4)


def test_a_failing_handler_ends_in_the_dead_letters(shop):
    @shop.handler("orders", retry=reliq.fixed(0, limit=2))
    def explode(message):
        raise KeyError("boom")

    shop.queue("orders").send("x")
    assert work_off(shop) == 3
    (letter,) = shop.queue("orders").dead.list()
    assert (letter.reason, letter.failures, letter.last_error.error_class) == ("max_failures", 3, "KeyError")


def test_large_bodies_are_listed_and_counted(shop):
    orders = shop.queue("orders")
    orders.send_many(["x" * 1024 * 1024, "y" * 1024 * 1024])
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "no")
    assert (orders.stats().ready, orders.stats().dead) == (1, 1)
    assert [letter.size for letter in orders.dead.list(bodies=False)] == [1024 * 1024]
    assert [letter.body for letter in orders.dead.list(reason="rejected")] == [message.body]


def test_async_handlers_and_delays_work_too(shop):
    handled = []

    @shop.handler("mails")
    async def mail(message):
        handled.append(message.body)

    shop.queue("mails").send("now")
    shop.queue("mails").send("later", delay="1h")
    assert work_off(shop) == 1
    assert handled == [b"now"]
    assert shop.queue("mails").stats().delayed == 1


@pytest.fixture(params=["offline", "on_server"])
def bench(request):
    """A bench of a new application, without a server and on one."""
    return request.getfixturevalue(request.param)(reliq.Reliq())


def test_a_bench_runs_handlers_and_knows_what_was_sent(bench):
    @bench.app.handler("orders")
    def ship(message):
        bench.app.queue("mails").send({"shipped": message.json()["order"]}, headers={"lang": "en"}, delay="1h")

    bench.app.queue("orders").send({"order": 1}, key="customer-7", priority="high")
    assert bench.work_off() == 1
    (order,), (mail,) = bench.sent("orders"), bench.sent("mails")
    assert (order.json(), order.key, order.priority, order.delay) == ({"order": 1}, "customer-7", "high", 0)
    assert (mail.json(), mail.headers["lang"], mail.delay) == ({"shipped": 1}, "en", 3600)
    assert [one.to for one in bench.sent()] == ["orders", "mails"]


def test_keys_go_to_the_partitions_of_their_queue(bench):
    ran = []
    bench.app.handler("orders")(lambda message: ran.append(message.key))
    bench.app.queue("orders").configure(partitions=4)
    for number in range(8):
        bench.app.queue("orders").send(number, key=f"customer-{number}")
    assert bench.work_off() == 8
    assert sorted(ran) == [f"customer-{number}" for number in range(8)]


def test_what_was_published_is_known_by_its_routing_key(bench):
    bench.app.subscribe("mails", "order.#")
    bench.app.publish("order.created", "x")
    (sent,) = bench.sent("order.created")
    assert sent.body == b"x"
    assert bench.app.queue("mails").stats().ready == 1


def test_what_was_not_sent_is_not_noted(bench):
    queue = bench.app.queue("orders")
    queue.send("first", dedup_key="k")
    queue.send("second", dedup_key="k")
    queue.configure(max_length=1)
    with pytest.raises(reliq.QueueFull):
        queue.send("third")
    assert [one.body for one in bench.sent()] == [b"first"]


def test_a_prepared_message_is_sent_with_its_commit(bench):
    orders = bench.app.queue("orders")
    with pytest.raises(OSError), orders.prepare("rolled back"):
        raise OSError
    with orders.prepare("first", dedup_key="k", delay="1m"):
        orders.send("meanwhile")
        assert [one.body for one in bench.sent()] == [b"meanwhile"]
    with orders.prepare("duplicate", dedup_key="k"):
        pass
    handle = orders.prepare("later", id="mine")
    bench.app.queue("mails").prepare("mail", id="mine")
    for _ in range(2):  # a commit may be repeated
        orders.prepared(handle.id).commit()
    assert [(one.body, one.delay) for one in bench.sent()] == [(b"meanwhile", 0), (b"first", 60), (b"later", 0)]


def test_time_passes_for_delays_retries_and_schedules(offline):
    bench, runs = offline(reliq.Reliq()), []

    @bench.app.handler("orders", retry=reliq.fixed("10m", limit=2))
    def ship(message):
        runs.append(message.failures)
        raise ConnectionError

    orders = bench.app.queue("orders")
    orders.send("x", delay="1h")
    assert (bench.work_off(), bench.travel("59m"), bench.work_off()) == (0, 0, 0)
    assert (bench.travel("2m"), bench.work_off()) == (1, 1)
    for _ in range(2):
        assert (bench.travel("10m"), bench.work_off()) == (1, 1)
    assert (runs, orders.stats().dead) == ([0, 1, 2], 1)


def test_time_passes_for_expiry_deduplication_and_schedules(offline):
    bench = offline(reliq.Reliq())
    bench.app.handler("orders")(lambda message: None)
    orders = bench.app.queue("orders")
    orders.send("x", ttl="1h")
    orders.send("y", dedup_key="k")
    bench.travel("2h")
    orders.send("z", dedup_key="k")
    bench.work_off()
    counters = orders.stats().counters
    assert counters["acked"] == 2  # y and z: its deduplication window is over
    assert [letter.reason for letter in orders.dead.list()] == ["expired"]

    bench.app.schedules.add("hourly", "1h", "orders", "tick")
    assert (bench.travel("65m"), bench.work_off()) == (1, 1)


def test_time_passes_for_the_schedules_of_decorators(offline):
    app, ran = reliq.Reliq(), []

    @app.every("1h")
    def clean(message: reliq.Message) -> None:
        ran.append(message.id)

    bench = offline(app)
    assert [one.name for one in app.schedules.list()] == ["clean"]
    assert bench.work_off() == 0
    assert bench.travel("1h") == 1
    assert bench.work_off() == 1
    assert ran[0].startswith("clean@")


def test_the_clock_the_sends_and_the_application_are_given_back():
    app, before = reliq.Reliq("redis://127.0.0.1:1/0", send_timeout=0.01), time.time()
    with Bench(app) as bench:
        app.queue("q").send("x")
        bench.travel("10d")
        assert time.time() > before + 864_000
    assert time.time() < before + 3600
    assert tracing.active is None
    with pytest.raises(reliq.RedisUnavailable):
        app.queue("q").send("x")


def test_a_server_has_a_clock_of_its_own(on_server):
    with pytest.raises(InvalidSetting, match="a Redis server has a clock of its own"):
        on_server(reliq.Reliq()).travel("1h")


@pytest.mark.parametrize("package", ["fakeredis", "time_machine"])
def test_without_its_packages_the_extra_is_named(monkeypatch, offline, package):
    bench = offline(reliq.Reliq())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[testing\]"):
        bench.travel("1h") if package == "time_machine" else fake(bench.app)


def test_the_examples_of_the_documentation_run(tmp_path):
    page = (ROOT / "docs" / "how-to" / "testing.md").read_text(encoding="utf-8")
    files = dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "monitor")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "4 passed" in done.stdout, done.stdout


def test_what_a_handler_emits_is_read_afterwards():
    app = reliq.Reliq()

    @app.handler("questions")
    def answer(message: reliq.Message) -> None:
        for word in message.json():
            message.emit(word)

    with Bench(app) as bench:
        queue = app.queue("questions")
        one = queue.send(["once", "upon"])
        bench.work_off()
        assert [(chunk.run, chunk.value) for chunk in queue.output(one)] == [(1, "once"), (1, "upon")]


def test_a_budget_is_charged_for_what_handlers_say():
    app = reliq.Reliq()

    @app.handler("questions")
    def answer(message: reliq.Message) -> None:
        message.charge(message.json())

    with Bench(app) as bench:
        queue = app.queue("questions")
        queue.configure(rate="1/h", burst=100)
        queue.send(10, cost=90)
        bench.work_off()
        queue.send(20, cost=90)  # of a hundred, ten are spent
        bench.work_off()
        queue.send(1, cost=90)
        assert (queue.stats().ready, queue.stats().limited_by) == (1, "rate")


def test_a_journey_logs_nothing(caplog):
    with Bench(reliq.Reliq()) as bench:
        bench.travel("1h")
    assert caplog.messages == []


def test_work_off_runs_no_more_handlers_than_its_limit(shop):
    for name in ("orders", "mails"):
        shop.handler(name)(lambda message: None)
        shop.queue(name).send("x")
    assert [work_off(shop, 1), work_off(shop, 1), work_off(shop, 1)] == [1, 1, 0]


def test_in_an_event_loop_it_says_where_to_call_it_and_fails_no_message(shop):
    @shop.handler("orders")
    async def ship(message: reliq.Message) -> None: ...

    async def story() -> int:
        await asyncio.to_thread(shop.queue("orders").send, "x")
        with pytest.raises(InvalidSetting, match="write await asyncio"):
            work_off(shop)
        return await asyncio.to_thread(work_off, shop)

    assert asyncio.run(story()) == 1
    assert shop.queue("orders").stats().counters["acked"] == 1


def test_a_handler_that_is_cancelled_fails_as_in_a_worker(shop):
    @shop.handler("orders", retry=0)
    async def ship(message: reliq.Message) -> None:
        raise asyncio.CancelledError

    shop.queue("orders").send("x")
    assert work_off(shop) == 1
    assert shop.queue("orders").stats().dead == 1


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("rests", [
    lambda message: message.sleep("a while", "1h"),
    lambda message: message.wait("approval"),
    lambda message: message.step("charge", fail, retry=3),
    lambda message: fail(),
], ids=["sleep", "wait", "step", "error"])  # fmt: skip
def test_a_cancelled_message_is_settled_as_by_a_worker(bench, kind, rests):
    app, orders = bench.app, bench.app.queue("orders")

    def ship(message):
        orders.cancel(message.id)
        return rests(message)

    async def ship_async(message):
        await asyncio.to_thread(orders.cancel, message.id)
        return await rests(message)

    app.handler("orders", retry=reliq.fixed("1h", limit=3))(ship if kind == "def" else ship_async)
    app.handler("bills")(lambda message: None)
    with app.flow() as flow:
        order = flow.send("orders", "x")
        flow.send("bills", "y", after=order, on_failure="fail")
    assert bench.work_off() == 1
    counters = orders.stats().counters
    assert (counters.get("acked"), counters["cancelled"]) == (None, 1)
    assert [letter.reason for letter in app.queue("bills").dead.list()] == ["predecessor"]


def fail():
    raise OSError


def test_a_handler_that_holds_its_queue_holds_it_until_the_time_has_come(offline):
    bench, ran = offline(reliq.Reliq()), []

    @bench.app.handler("orders")
    def ship(message: reliq.Message) -> None:
        ran.append(message.body)
        if not message.failures:
            raise reliq.Retry("too many requests", delay="10m", scope="queue")

    orders = bench.app.queue("orders")
    orders.send_many(["first", "second"])
    assert (bench.work_off(), ran) == (1, [b"first"])
    stats = orders.stats()
    assert (stats.ready, stats.delayed, stats.limited_by) == (1, 1, "held")
    bench.travel("11m")
    assert orders.stats().limited_by == ""
    assert bench.work_off(1) == 1


def test_a_handler_that_holds_its_queue_holds_all_partitions_of_it(bench):
    @bench.app.handler("orders")
    def ship(message: reliq.Message) -> None:
        raise reliq.Retry("too many requests", delay="10m", scope="queue")

    bench.app.queue("orders").configure(partitions=4)
    for number in range(8):
        bench.app.queue("orders").send(number, key=f"customer-{number}")
    assert bench.work_off() == 1


def test_a_handler_that_holds_its_key_holds_no_other_one(offline):
    bench, ran = offline(reliq.Reliq()), []

    @bench.app.handler("orders")
    def ship(message: reliq.Message) -> None:
        ran.append(message.body)
        if message.body == b"ada 1" and not message.failures:
            raise reliq.Retry("too many requests", delay="10m", scope="key")

    orders = bench.app.queue("orders")
    for body in ("ada 1", "ada 2", "bob 1"):
        orders.send(body, limit_key=body[:3])
    assert (bench.work_off(), ran) == (2, [b"ada 1", b"bob 1"])
    bench.travel("11m")
    assert (bench.work_off(), sorted(ran[2:])) == (2, [b"ada 1", b"ada 2"])


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, GeneratorExit, BaseException])
def test_whatever_a_handler_raises_is_the_outcome_of_its_message(shop, kind, error):
    def ship(message):
        raise error

    async def ship_async(message):
        raise error

    shop.handler("orders", retry=reliq.fixed(0, limit=1))(ship if kind == "def" else ship_async)
    shop.queue("orders").send("x")
    assert work_off(shop) == 2
    assert [letter.failures for letter in shop.queue("orders").dead.list()] == [2]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_ctrl_c_ends_the_test_and_its_message_is_tried_again(shop, kind):
    def ship(message):
        raise KeyboardInterrupt

    async def ship_async(message):
        raise KeyboardInterrupt

    shop.handler("orders", retry=reliq.fixed("1h", limit=1))(ship if kind == "def" else ship_async)
    shop.queue("orders").send("x")
    with pytest.raises(KeyboardInterrupt):
        work_off(shop)
    stats = shop.queue("orders").stats()
    assert (stats.processing, stats.delayed) == (0, 1)


class Client:
    """A client as many are: its connection belongs to the event loop of its first call."""

    def __init__(self):
        self.loop = None

    async def call(self):
        self.loop = self.loop or asyncio.get_running_loop()
        return await asyncio.wait_for(self.loop.run_in_executor(None, int), 5)


def test_async_handlers_share_an_event_loop_until_the_end_of_the_bench(bench):
    client = Client()

    @bench.app.handler("orders", retry=0)
    async def ship(message: reliq.Message) -> None:
        await client.call()

    @bench.app.handler("mails", retry=0)
    async def mail(message: reliq.Message) -> None:
        await client.call()

    for queue in ("orders", "orders", "mails"):
        bench.app.queue(queue).send("x")
    assert bench.work_off() == 3
    bench.app.queue("orders").send("x")
    assert bench.work_off() == 1
    assert bench.app.queue("orders").stats().counters["acked"] == 3
    assert bench.app.queue("mails").stats().counters["acked"] == 1
    bench.close()
    assert client.loop and client.loop.is_closed()


def test_tasks_that_a_handler_leaves_behind_end_and_what_they_send_is_handled(shop):
    ended, tasks = [], set()

    @shop.handler("orders")
    async def ship(message: reliq.Message) -> None:
        tasks.add(asyncio.create_task(tell()))

    async def tell():
        await asyncio.sleep(0.01)
        await asyncio.to_thread(shop.queue("mails").send, "shipped")
        ended.append("told")

    shop.handler("mails")(lambda message: ended.append("mailed"))
    shop.queue("orders").send("x")
    assert work_off(shop) == 2
    assert ended == ["told", "mailed"]


def test_a_task_without_an_end_is_cancelled_at_the_end_of_the_bench(monkeypatch):
    app, said, tasks = reliq.Reliq(), [], set()
    monkeypatch.setattr("reliq.testing.running._PATIENCE", 0)

    @app.handler("orders")
    async def ship(message: reliq.Message) -> None:
        tasks.add(asyncio.create_task(listen()))

    async def listen():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            said.append("cancelled")
            raise

    with Bench(app) as bench:
        app.queue("orders").send("x")
        assert bench.work_off() == 1
        assert said == []
    assert said == ["cancelled"]


def test_context_variables_that_a_handler_sets_do_not_reach_the_next_message(bench):
    variable, found = contextvars.ContextVar("variable", default="none"), []

    @bench.app.handler("orders")
    async def ship(message: reliq.Message) -> None:
        found.append(variable.get())
        variable.set("of a message")

    variable.set("of the test")
    bench.app.queue("orders").send_many(["x", "y"])
    assert bench.work_off() == 2
    assert found == ["of the test"] * 2


def test_a_bench_in_an_event_loop_runs_async_handlers_in_a_thread_and_ends(shop):
    @shop.handler("orders")
    async def ship(message: reliq.Message) -> None:
        await asyncio.sleep(0)

    async def story() -> list[int]:
        with Bench(shop) as bench:
            await asyncio.to_thread(shop.queue("orders").send_many, ["x", "y"])
            return [await asyncio.to_thread(bench.work_off, 1) for _ in range(3)]

    assert asyncio.run(story()) == [1, 1, 0]


def test_what_is_due_by_the_clock_of_the_server_runs(bench):
    @bench.app.handler("orders", retry=reliq.fixed("0.1s", limit=1))
    def ship(message: reliq.Message) -> None:
        if message.body == b"fails" and not message.failures:
            raise OSError
        if message.body == b"sleeps":
            message.sleep("a while", "0.1s")
        if message.body == b"waits":
            message.wait("approval", timeout="0.1s", default=None)

    orders = bench.app.queue("orders")
    orders.send("delayed", delay="0.1s")
    for body in ("fails", "sleeps", "waits"):
        orders.send(body)
    runs = 0

    def all_are_handled() -> bool:
        nonlocal runs
        runs += bench.work_off()
        return orders.stats().counters.get("acked") == 4

    eventually(all_are_handled)
    assert runs == 7


def test_ticks_of_schedules_come_with_travel_only(offline):
    bench = offline(reliq.Reliq())
    bench.app.handler("orders")(lambda message: None)
    bench.app.schedules.add("hourly", "1h", "orders", "tick")
    with time_machine.travel(time.time() + 4000, tick=True):
        assert bench.work_off() == 0
    assert (bench.travel("65m"), bench.work_off()) == (1, 1)


def test_a_second_bench_of_an_application_is_refused_and_the_first_one_goes_on(offline):
    app = reliq.Reliq("redis://127.0.0.1:1/0", send_timeout=0.01)
    bench = offline(app)
    with pytest.raises(InvalidSetting, match="is on another bench"), Bench(app):
        pass
    app.queue("orders").send("x")
    assert [one.body for one in bench.sent()] == [b"x"]
    assert app.queue("orders").stats().ready == 1


def test_a_bench_may_follow_another_one():
    app = reliq.Reliq("redis://127.0.0.1:1/0", send_timeout=0.01)
    bench = Bench(app)
    for one in (bench, bench, Bench(app)):
        with one:
            assert app.queue("orders").stats().ready == 0
            app.queue("orders").send("x")
        one.close()
    with pytest.raises(reliq.RedisUnavailable):
        app.queue("orders").send("x")


def test_the_end_of_a_bench_gives_an_application_without_a_server_its_memory_back(shop):
    shop.queue("orders").send("x")
    with Bench(shop):
        assert shop.queue("orders").stats().ready == 0
    assert shop.queue("orders").stats().ready == 1


def test_a_bench_that_cannot_begin_leaves_the_application_as_it_was(monkeypatch, shop):
    shop.queue("orders").send("x")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fakeredis", None)
        with pytest.raises(MissingExtra), Bench(shop):
            pass
    assert shop.handlers.around_sends == []
    assert shop.queue("orders").stats().ready == 1


@pytest.mark.parametrize("use", [Bench, fake, work_off])
def test_an_application_of_asyncio_is_refused_with_what_to_give_instead(use):
    with pytest.raises(InvalidSetting, match=r"given a reliq\.aio\.Reliq: give it a reliq\.Reliq"):
        use(reliq.aio.Reliq())


@pytest.fixture
def again(offline):
    """An application with a handler, on its second bench. The first one's queue had partitions, and a later clock."""
    app = reliq.Reliq()
    app.handler("orders")(lambda message: None)
    with Bench(app) as bench:
        app.queue("orders").configure(partitions=4)
        for number in range(8):
            app.queue("orders").send(number, key=f"customer-{number}", delay="1h")
        assert (bench.travel("10d"), bench.work_off()) == (8, 8)
        app.queue("orders").send("x", delay="1h")
        app.subscribe("orders", "order.#")
        app.publish("order.created", "x")
        app.queue("orders").receive(wait=0)
    return offline(app)


def test_a_further_bench_brings_what_is_due(again):
    again.app.queue("orders").send("x", delay="1h")
    assert (again.travel("2h"), again.work_off()) == (1, 1)


def test_a_further_bench_knows_no_partitions_of_the_former_one(again):
    orders = again.app.queue("orders")
    for number in range(8):
        orders.send(number, key=f"customer-{number}")
    assert again.app.queues() == ["orders"]
    assert again.work_off() == 8


def test_a_further_bench_knows_no_subscriptions_of_the_former_one(again):
    with pytest.raises(reliq.Unroutable):
        again.app.publish("order.created", "x", mandatory=True)


def test_a_further_bench_has_a_clock_of_its_own(again):
    orders = again.app.queue("orders")
    orders.send("x", ttl="1h")
    again.travel("2h")
    assert again.work_off() == 0
    assert [letter.reason for letter in orders.dead.list()] == ["expired"]


def test_a_further_bench_receives(again):
    orders = again.app.queue("orders")
    orders.send("x")
    assert [one.message.body for one in orders.receive(wait=0)] == [b"x"]


def test_the_url_of_the_application_is_that_of_its_bench(on_server, offline):
    app, other = reliq.Reliq(), reliq.Reliq()
    live = app.url
    bench = on_server(app)
    assert bench.url == app.url != live
    bench.close()
    assert app.url == live
    offline(other)
    assert "memory" in other.url


def test_a_bench_without_a_server_has_no_url_for_other_clients(offline):
    app = reliq.Reliq()
    bench = offline(app)
    with pytest.raises(InvalidSetting, match=r"this bench has no server.*on_server\(app\)"):
        _ = bench.url
    with pytest.raises(InvalidSetting, match="only that application is connected to it"):
        reliq.Reliq(app.url).queue("orders").send("x")


async def send_with_asyncio(url):
    async with reliq.aio.Reliq(url) as other:
        return await other.queue("orders").send("x")


@pytest.mark.parametrize("kind", ["offline", "on_server"])
def test_another_client_of_the_live_server_is_refused_while_a_bench_is_open(request, monkeypatch, kind):
    with EmbeddedRedis() as live:
        monkeypatch.setenv("RELIQ_URL", live.url)
        app, early = reliq.Reliq(), reliq.Reliq()
        with Bench(app, request.getfixturevalue("reliq_server").url if kind == "on_server" else None):
            app.queue("orders").send("x")
            for url in (None, live.url, live.url.replace("127.0.0.1", "localhost")):
                with pytest.raises(InvalidSetting, match=r"on a bench, and this other client .* bench\.url"):
                    reliq.Reliq(url).queue("orders").send("x")
                with pytest.raises(InvalidSetting, match="on a bench"):
                    asyncio.run(send_with_asyncio(url))
            with pytest.raises(InvalidSetting, match="on a bench"):  # made before the bench
                early.queue("orders").send("x")
        assert early.queues() == []
        early.queue("orders").send("x")
        assert app.queue("orders").stats().ready == 1


def test_a_bench_on_the_live_server_itself_refuses_no_one(monkeypatch, reliq_server):
    monkeypatch.setenv("RELIQ_URL", reliq_server.url)
    with Bench(reliq.Reliq(), reliq_server.url) as bench:
        reliq.Reliq().queue("orders").send("x", id="mine")
        assert bench.app.queue("orders").find("mine") is not None
