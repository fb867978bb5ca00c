"""Schedules of decorators: a worker stores them when it starts, and handles their messages."""

from typing import cast

import pytest

import reliq
from reliq import InvalidHandler, InvalidName, InvalidSetting, aio
from reliq.features.schedules.model import Definition
from tests.support.workers import eventually, working


def test_a_handler_runs_on_its_schedule(app):
    ran = []

    @app.every("1s", body={"kind": "poll"})
    @app.handler("polls")
    def poll(message):
        ran.append((message.id, message.json()))

    with working(app, monitor=True):
        eventually(lambda: len(ran) >= 2)
    assert [body for _, body in ran] == [{"kind": "poll"}] * len(ran)
    assert all(identity.startswith("polls@20") for identity, _ in ran)
    assert len(set(ran_ids := [identity for identity, _ in ran])) == len(ran_ids)


def test_an_asyncio_application_has_the_same_decorator(url):
    app, ran = aio.Reliq(url), []

    @app.every("1s")
    async def tidy_up(message):
        ran.append(message.id)

    with working(cast("reliq.Reliq", app), monitor=True):  # a worker takes the handlers of both
        eventually(lambda: ran)
    assert ran[0].startswith("tidy_up@20")


def test_a_restart_keeps_the_next_tick_and_a_deploy_changes_the_schedule(app, url):
    def deploy(when, **options):
        release = reliq.Reliq(url)

        @release.every(when, queue="polls", **options)
        def poll(message): ...

        with working(release):
            eventually(lambda: release.schedules.list() and release.schedules.get("polls").when == when)
        release.close()
        return app.schedules.get("polls")

    first = deploy("0 0 1 1 *", tz="Europe/Berlin")
    app.schedules.pause("polls")
    again = deploy("0 0 1 1 *", tz="Europe/Berlin")
    assert again.paused
    app.schedules.resume("polls")
    assert app.schedules.get("polls") == first
    assert deploy("0 0 2 1 *", tz="Europe/Berlin").next_tick.day == 2


def test_one_handler_may_have_several_schedules_with_names(app):
    @app.every("0 7 * * *", name="morning", body="m")
    @app.every("0 19 * * *", name="evening", body="e")
    @app.handler("reports")
    def report(message): ...

    schedules = app.handlers.declared(Definition)
    assert [(one.name, one.queue) for one in schedules] == [("evening", "reports"), ("morning", "reports")]


def test_mistakes_are_refused_where_they_are_made(app):
    @app.handler("polls")
    def poll(message): ...

    app.every("30s")(poll)
    with pytest.raises(InvalidHandler, match="two schedules have the name 'polls'"):
        app.every("60s")(poll)
    with pytest.raises(InvalidHandler, match="handles queue 'polls', and its schedule is for 'others'"):
        app.every("30s", queue="others", name="x")(poll)
    with pytest.raises(InvalidHandler, match="two handlers"):
        app.every("30s", queue="polls", name="x")(lambda message: None)
    with pytest.raises(InvalidSetting, match="never fires"):
        app.every("0 0 31 2 *", name="x")(poll)
    with pytest.raises(InvalidName, match="lambda"):
        app.every("30s", name="x")(lambda message: None)
    with pytest.raises(InvalidHandler, match="cannot be called with"):
        app.every("30s", queue="none", name="x")(lambda: None)
    assert [one.name for one in app.handlers.declared(Definition)] == ["polls"]


def test_without_redis_the_worker_stores_them_later(app, url):
    from reliq.features.schedules.worker import DefinedSchedules
    from reliq.model.handlers import Handlers
    from reliq.transport.store import Store

    handlers = Handlers()
    handlers.declare(app.schedules._steps.define("s", "30s", "q", "x", {}))
    store = Store("redis://127.0.0.1:1")
    away = DefinedSchedules(store, handlers, "owner")
    away.keep()
    assert app.schedules.list() == []
    away._store = app.store
    away.keep()
    assert [one.name for one in app.schedules.list()] == ["s"]
    store.close()
