"""Django's tasks on reliq: sent when a transaction commits, run by `reliq worker`, dead letters after their retries."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import reliq
from tests.support.ports import free_port
from tests.support.workers import ROOT, eventually, started

SHOP = ROOT / "examples" / "django_shop"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database and the cache: Django reads its settings once in a process."""
    return tmp_path_factory.mktemp("shop")


@pytest.fixture
def shop(url: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The tasks of the example, in this process."""
    monkeypatch.setenv("RELIQ_URL", url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "settings")
    monkeypatch.setenv("SHOP_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("SHOP_DB", str(folder / "db"))
    monkeypatch.setenv("SHOP_CACHE", str(folder / "cache"))
    monkeypatch.syspath_prepend(SHOP)
    import django

    django.setup()
    import shop

    from reliq.contrib.django.deaths import Deaths

    monkeypatch.setattr(Deaths, "start", lambda _: None)  # the worker's module starts it, in this process for ever
    from django.core.management import call_command
    from django.db import connections

    call_command("migrate", verbosity=0)
    yield shop
    connections.close_all()


def run_all(queue: reliq.Queue) -> None:
    """Run a worker in a process of its own until the queue is empty."""
    work_until(lambda: (now := queue.stats()).ready + now.processing == 0)


def work_until(condition: Callable[[], bool]) -> None:
    """Run a worker in a process of its own, for a while."""
    worker = started("worker", "reliq.contrib.django.worker:app", "--quiet", folder=SHOP)
    try:
        eventually(condition, timeout=30)
    finally:
        worker.terminate()
        worker.wait(timeout=30)


def test_a_task_is_sent_when_its_transaction_commits(app: reliq.Reliq, shop: Any, tmp_path: Path) -> None:
    from django.db import transaction

    queue = app.queue("default")
    with transaction.atomic():
        result = shop.ship.enqueue(1)
        assert queue.stats().ready == 0
    assert queue.stats().ready == 1
    with transaction.atomic():
        shop.ship.enqueue(2)
        transaction.set_rollback(True)
    assert queue.stats().ready == 1
    assert result.status == "READY"
    run_all(queue)
    assert (tmp_path / "log").read_text() == "shipped 1\n"


def test_a_task_fails_and_waits_for_its_retry(app: reliq.Reliq, shop: Any) -> None:
    queue = app.queue("default")
    result = shop.refuse.enqueue(7)
    run_all(queue)
    (waiting,) = queue.delayed.list(failed=True)
    assert waiting.id == result.id
    assert "attempt 1: no such order: 7" in waiting.errors[-1].text
    queue.delayed.run(result.id)
    work_until(lambda: [message.failures for message in queue.delayed.list(failed=True)] == [2])
    (waiting,) = queue.delayed.list(failed=True)
    assert "attempt 2: no such order: 7" in waiting.errors[-1].text


def test_a_task_that_is_deferred_or_has_a_priority(app: reliq.Reliq, shop: Any) -> None:
    from datetime import timedelta

    from django.utils import timezone

    shop.ship.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1)
    assert app.queue("default").stats().delayed == 1
    shop.ship.using(priority=10).enqueue(2)
    with app.queue("default").consumer() as consumer:
        (message,) = consumer.claim()
        assert (message.priority, message.json()["args"], message.headers) == ("high", [2], {"task": "shop.ship"})


def test_a_task_runs_when_it_was_to_however_late_it_is_sent(app: reliq.Reliq, shop: Any) -> None:
    """Here the moment has come before the transaction is over, and before the outbox is sent."""
    from datetime import timedelta

    from django.db import transaction
    from django.utils import timezone

    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    soon = timezone.now() + timedelta(seconds=0.5)
    with transaction.atomic():
        shop.ship.using(run_after=soon).enqueue(1)
        shop.charge.using(run_after=soon).enqueue(1, 100)
        time.sleep(0.6)
    relay_once(engine_of("default"), app)
    assert [(one.ready, one.delayed) for one in map(reliq.Queue.stats, map(app.queue, ("default", "payments")))] == [
        (1, 0), (1, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings_of_backend", "sentence"),
    [
        ({"OPTIONS": {"retry": 3}}, r"OPTIONS \['retry'\]"),
        ({"OPTIONS": {"results": "nowhere"}}, r"cache 'nowhere': CACHES has \['default', 'own'\]"),
        ({"OPTIONS": {"results": "own"}}, "LocMemCache: workers do not see it"),
        ({"QUEUES": []}, "has no QUEUES: a worker takes"),
        ({"QUEUES": ["mail", "e mail"]}, "queue name 'e mail'"),
    ],
)
def test_wrong_settings_are_refused(
    shop: Any, monkeypatch: pytest.MonkeyPatch, settings_of_backend: dict[str, Any], sentence: str
) -> None:
    from django.conf import settings

    from reliq.contrib.django import ReliqBackend

    monkeypatch.setitem(settings.CACHES, "own", {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"})
    with pytest.raises((reliq.errors.InvalidSetting, reliq.errors.InvalidName), match=sentence):
        ReliqBackend("default", {"OPTIONS": {}, **settings_of_backend})


def test_two_backends_with_one_queue_are_refused(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings

    from reliq.contrib.django.worker import application

    monkeypatch.setitem(settings.TASKS, "twin", {"BACKEND": settings.RELIQ, "QUEUES": ["mail", "payments"]})
    with pytest.raises(reliq.errors.InvalidSetting, match=r"several backends with the queues \['payments'\]"):
        application()


def test_a_task_in_the_outbox_is_a_row_of_its_transaction(app: reliq.Reliq, shop: Any) -> None:
    from django.db import connection, transaction

    def rows() -> list[Any]:
        with connection.cursor() as cursor:
            return list(cursor.execute("SELECT id, queue FROM reliq_outbox").fetchall())

    with transaction.atomic():
        kept = shop.charge.enqueue(1, 100)
        assert rows() == [(kept.id, "payments")]
    with transaction.atomic():
        shop.charge.enqueue(2, 100)
        transaction.set_rollback(True)
    assert rows() == [(kept.id, "payments")]
    assert app.queue("payments").stats().ready == 0
    work_until(lambda: app.queue("payments").stats().counters.get("acked") == 1)
    assert rows() == []


def test_a_task_in_the_outbox_keeps_its_priority(app: reliq.Reliq, shop: Any) -> None:
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    shop.charge.using(priority=1).enqueue(3, 100)
    relay_once(engine_of("default"), app)
    with app.queue("payments").consumer() as consumer:
        assert [message.priority for message in consumer.claim()] == ["high"]


@pytest.fixture
def configure(shop: Any, postgresql: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that adds the database "pg" to Django's settings, with some of these set otherwise."""
    from django.db import connections
    from sqlalchemy import make_url

    url = make_url(postgresql)
    usual = {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username, "HOST": url.host,
        "PORT": url.port,
    }  # fmt: skip

    def configured(**database: Any) -> None:
        every = connections.configure_settings({"default": {}, "pg": usual | database})
        monkeypatch.setitem(connections.settings, "pg", every["pg"])
        monkeypatch.setattr(connections["pg"], "settings_dict", every["pg"])

    return configured


def test_the_relay_connects_to_postgresql_as_django_does(postgresql: str, configure: Callable[..., None]) -> None:
    from sqlalchemy import create_engine

    from reliq.contrib.django.outbox import engine_of

    configure(OPTIONS={"application_name": "shop", "assume_role": "Shop owner"})
    owner, engine = create_engine(postgresql), engine_of("pg")
    with owner.begin() as connection:
        connection.exec_driver_sql('DROP ROLE IF EXISTS "Shop owner"')
        connection.exec_driver_sql('CREATE ROLE "Shop owner"')
    for _ in range(2):  # the second time by the connection of the pool, which was rolled back
        with engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT current_user, current_setting('application_name')").one()
            assert tuple(found) == ("Shop owner", "shop")
    for one in (owner, engine):
        one.dispose()


def test_the_relay_knows_several_hosts_and_all_options_of_django(
    postgresql: str, configure: Callable[..., None], tmp_path: Path
) -> None:
    from sqlalchemy import make_url

    from reliq.contrib.django.outbox import engine_of

    options = {"connect_timeout": 7, "sslrootcert": tmp_path / "root.crt", "pool": True, "isolation_level": 2}
    port = make_url(postgresql).port
    configure(HOST="127.0.0.1,127.0.0.1", PORT=f"{free_port()},{port}", OPTIONS=options)
    engine = engine_of("pg")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT inet_server_port()").scalar_one() == port
        opened: Any = connection.connection.driver_connection
        known = opened.info.get_parameters()
    assert (known["connect_timeout"], known["sslrootcert"]) == ("7", str(tmp_path / "root.crt"))
    engine.dispose()


def test_the_relay_waits_for_sqlite_as_long_as_django_does(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connections

    from reliq.contrib.django.outbox import engine_of

    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {"timeout": 42, "init_command": "SELECT 1"})
    engine = engine_of("default")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() == 42_000
    engine.dispose()


def test_results_are_stored_where_the_options_say(app: reliq.Reliq, shop: Any) -> None:
    good, bad = shop.charge.enqueue(1, 100), shop.charge.enqueue(2, -5)
    good.refresh()
    assert (good.status, good.attempts) == ("READY", 0)
    work_until(lambda: app.queue("payments").stats().dead == 1)
    eventually(lambda: good.refresh() or bad.refresh() or (good.is_finished and bad.is_finished))
    assert (good.status, good.return_value, good.attempts) == ("SUCCESSFUL", {"order": 1, "charged": 100}, 1)
    assert (bad.status, bad.errors[0].exception_class) == ("FAILED", ValueError)
    assert "order 2: the amount is -5" in bad.errors[0].traceback
    again = shop.charge.get_result(good.id)
    assert (again.task.queue_name, again.args, again.finished_at) == ("payments", [1, 100], good.finished_at)
    with pytest.raises(Exception, match="no-such-task"):
        shop.charge.get_result("no-such-task")


def test_a_message_that_names_no_task_is_a_dead_letter(app: reliq.Reliq, shop: Any) -> None:
    app.queue("default").send({"task": "os.getcwd", "args": [], "kwargs": {}, "backend": "default"})
    run_all(app.queue("default"))
    (letter,) = app.queue("default").dead.list()
    assert "os.getcwd is not a task" in letter.errors[-1].text


def test_a_task_that_became_a_dead_letter_has_failed(app: reliq.Reliq, shop: Any) -> None:
    """Here a consumer makes it a dead letter, as a monitor does with a task that kills its workers."""
    result = shop.charge.enqueue(1, 100)
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    relay_once(engine_of("default"), app)
    with app.queue("payments").consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "max_deliveries")
    result.refresh()
    assert (result.status, result.is_finished) == ("FAILED", True)
    assert "max_deliveries" in result.errors[-1].traceback
    assert result.errors[-1].exception_class is reliq.Dead
    app.queue("payments").dead.redrive()
    result.refresh()
    assert result.status == "READY"


@pytest.mark.parametrize("aware", [True, False])
def test_all_times_are_as_the_settings_say(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch, aware: bool
) -> None:
    from datetime import timedelta

    from django.conf import settings
    from django.utils import timezone

    from reliq.contrib.django.compat import task_backends
    from reliq.contrib.django.ends import bury, result_of

    monkeypatch.setattr(settings, "USE_TZ", aware)
    queue = app.queue("default")
    shop.ship.enqueue(1)
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "max_deliveries")
    (letter,) = queue.dead.list()
    result = result_of(task_backends["default"], shop.ship, message)
    bury(result, letter)
    for time_of_result in (result.enqueued_at, result.finished_at):
        assert timezone.is_aware(time_of_result) == aware
        assert abs(timezone.now() - time_of_result) < timedelta(hours=1)


def test_a_task_without_time_zones_is_deferred_to_a_moment(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import UTC, datetime, timedelta

    from django.conf import settings

    monkeypatch.setattr(settings, "USE_TZ", False)
    moment = datetime.now(UTC) + timedelta(hours=1)
    for run_after in (moment, moment.astimezone().replace(tzinfo=None)):
        shop.ship.using(run_after=run_after).enqueue(1)
    dues = [one.due_at / 1000 - moment.timestamp() for one in app.queue("default").delayed.list()]
    assert [abs(late) < 60 for late in dues] == [True, True]


def test_a_task_that_rejects_itself_has_failed_at_once(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reliq.contrib.django import worker
    from reliq.contrib.django.compat import Task, task_backends
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    def rejects(*_: object) -> None:
        raise reliq.Dead("no such order")

    result = shop.charge.enqueue(1, 100)
    relay_once(engine_of("default"), app)
    backend = task_backends["outbox"]
    monkeypatch.setitem(backend.options, "retries", 3)
    monkeypatch.setattr(Task, "call", rejects)
    with app.queue("payments").consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(reliq.Dead):
            worker.run(backend, message)
    assert backend.noted(result.id).status == "FAILED"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_task_that_kills_its_workers_is_finished_in_one_of_the_others(
    app: reliq.Reliq, shop: Any, partitions: int
) -> None:
    from reliq.contrib.django.compat import task_backends, task_finished
    from reliq.contrib.django.deaths import Deaths
    from reliq.protocol.outcomes import buried, failure_now

    finished: list[Any] = []

    def note(task_result: Any, **_: Any) -> None:
        finished.append((task_result.id, task_result.task, task_result.status, task_result.args))
        raise ValueError("a receiver fails")

    queue = app.queue("default")
    queue.configure(partitions=partitions)
    result = shop.ship.enqueue(1)
    readers = [Deaths(app, [task_backends["default"]]) for _ in range(2)]
    with queue.consumer() as consumer:
        (message,) = consumer.claim(wait=10)
        failure = failure_now(consumer.id, "x", "y")
        consumer._settle((message,), lambda one: buried(one, failure, "max_deliveries"))
    task_finished.connect(note)
    try:
        for reader in (*readers, *readers):
            reader.look()
    finally:
        task_finished.disconnect(note)
    assert finished == [(result.id, shop.ship, "FAILED", [1])]


def test_a_task_that_exits_has_failed(app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from reliq.contrib.django import worker
    from reliq.contrib.django.compat import Task, task_backends
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    monkeypatch.setattr(Task, "call", lambda *_: exit(3))
    result = shop.charge.enqueue(1, 100)
    relay_once(engine_of("default"), app)
    with app.queue("payments").consumer() as consumer:
        (message,) = consumer.claim()
        with pytest.raises(SystemExit):
            worker.run(task_backends["outbox"], message)
    assert task_backends["outbox"].noted(result.id).status == "FAILED"
    (handler,) = [one for one in worker.app.handlers if one.queue == "payments"]
    assert handler.policy.rejects(SystemExit(3))


@pytest.mark.parametrize("name", ["ship", "charge"])  # the second one by the outbox
def test_what_a_receiver_raises_is_logged_and_makes_no_task_fail(
    app: reliq.Reliq, shop: Any, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    from reliq.contrib.django import worker
    from reliq.contrib.django.compat import task_backends, task_enqueued, task_finished, task_started
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    told: list[str] = []

    def note(task_result: Any, **_: Any) -> None:
        told.append(task_result.status)
        raise ValueError("a receiver fails")

    signals, task = (task_enqueued, task_started, task_finished), getattr(shop, name)
    for signal in signals:
        signal.connect(note)
    try:
        result = task.enqueue(*{"ship": (1,), "charge": (1, 100)}[name])
        relay_once(engine_of("default"), app)
        with app.queue(task.queue_name).consumer() as consumer:
            worker.run(task_backends[task.backend], *consumer.claim())
    finally:
        for signal in signals:
            signal.disconnect(note)
    assert told == ["READY", "RUNNING", "SUCCESSFUL"]
    assert caplog.text.count("ValueError: a receiver fails") == 3
    if task_backends[task.backend].supports_get_result:
        result.refresh()
        assert (result.status, result.errors) == ("SUCCESSFUL", [])


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test counts for the limits of the log of another one."""
    from reliq.contrib.django import failures
    from reliq.runtime.failures import FailureLog

    monkeypatch.setattr(failures, "_failures", FailureLog(log=failures.log))


class FailingCache:
    """The cache of results, which is away after so many calls."""

    def __init__(self, cache: Any, calls: int) -> None:
        self._cache = cache
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls -= 1
        if self._calls < 0:
            raise ConnectionError("the cache is away")
        return getattr(self._cache, name)


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize(("amount", "status"), [(100, "SUCCESSFUL"), (-5, "FAILED")])
@pytest.mark.parametrize(("calls", "stored"), [(0, None), (1, "READY"), (2, "READY"), (3, "RUNNING")])
def test_a_task_runs_and_ends_as_it_does_while_the_cache_of_results_is_away(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    amount: int, status: str, calls: int, stored: str | None,
) -> None:  # fmt: skip
    from django.core.cache import caches

    from reliq.contrib.django import results, worker
    from reliq.contrib.django.compat import TaskResultDoesNotExist, task_backends, task_finished
    from reliq.contrib.django.outbox import engine_of
    from reliq.contrib.sql import relay_once

    told: list[Any] = []

    def note(task_result: Any, **_: Any) -> None:
        told.append((task_result.status, task_result.attempts, task_result.args))

    task_finished.connect(note)
    expected = contextlib.nullcontext() if status == "SUCCESSFUL" else pytest.raises(ValueError, match="-5")
    with monkeypatch.context() as patch:
        patch.setattr(results, "caches", {"default": FailingCache(caches["default"], calls)})
        result = shop.charge.enqueue(1, amount)
        relay_once(engine_of("default"), app)
        with app.queue("payments").consumer() as consumer, expected:
            worker.run(task_backends["outbox"], *consumer.claim())
    task_finished.disconnect(note)
    assert told == [(status, 1, [1, amount])]
    assert [one.split()[0] for one in caplog.messages if "result" in one] == [
        *["result_not_stored"] * (calls < 1),
        *["result_not_loaded"] * (calls < 2),
        *["result_not_stored"] * (min(2, 4 - calls)),
    ]
    assert f"queue=payments id={result.id}" in caplog.text
    if stored is None:
        with pytest.raises(TaskResultDoesNotExist):
            result.refresh()
    else:
        result.refresh()
        assert result.status == stored


@pytest.mark.usefixtures("unlimited")
def test_a_task_is_sent_while_the_cache_of_results_is_away(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from reliq.contrib.django import ReliqBackend, results

    monkeypatch.setattr(results, "caches", {"default": FailingCache(None, 0)})
    backend = ReliqBackend("default", {"OPTIONS": {"results": "default"}})
    result = backend.enqueue(shop.ship, (1,), {})
    assert app.queue("default").find(result.id) is not None
    assert f"result_not_stored queue=default id={result.id}" in caplog.text


def test_the_backends_of_all_threads_and_requests_share_one_client(shop: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import Context

    from reliq.contrib.django.compat import task_backends

    def client() -> reliq.Reliq:
        backend: Any = task_backends["default"]
        return backend.app

    with ThreadPoolExecutor() as pool:
        assert pool.submit(client).result() is client()
    assert Context().run(client) is client()  # as a request of ASGI


def test_a_connection_that_has_become_too_old_is_closed_before_a_task_begins(
    app: reliq.Reliq, shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reliq.contrib.django import worker
    from reliq.contrib.django.compat import task_backends

    done: list[str] = []
    backend: Any = task_backends["default"]

    def read(_: str) -> Any:  # maybe of a database
        done.append("read")
        raise NotImplementedError

    monkeypatch.setattr(worker, "close_old_connections", lambda: done.append("close"))
    monkeypatch.setattr(backend, "noted", read)
    shop.ship.enqueue(1)
    with app.queue("default").consumer() as consumer:
        worker.run(backend, *consumer.claim())
    assert done == ["close", "read", "close"]
