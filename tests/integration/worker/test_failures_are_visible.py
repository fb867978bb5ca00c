"""A handler that fails is seen in the worker's log at once, with its error, and once more when the message dies."""

import json
import logging
import signal
from typing import Any

import pytest

import reliq
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store
from tests.support.handlers import bind, working_as
from tests.support.turns import Monitor
from tests.support.workers import eventually, process, working


def lines(caplog, start):
    return [record for record in caplog.records if record.getMessage().startswith(start)]


def test_the_first_failure_of_a_misspelt_key_is_logged(app, kind, caplog):
    bind(app, kind, lambda message: message.json()["oder"])
    identity = app.queue("q").send({"order": 1})
    with working_as(kind, app):
        (record,) = eventually(lambda: lines(caplog, "failed "))
        eventually(lambda: app.queue("q").stats().delayed == 1)
    assert record.levelno == logging.WARNING
    assert f"queue=q id={identity} failures=1 retry_in_seconds=" in record.getMessage()
    assert "error_class=KeyError error='oder'" in record.getMessage()


def test_a_death_is_logged_as_an_error_with_its_traceback(app, kind, caplog):
    bind(app, kind, lambda message: message.json()["oder"], retry=reliq.fixed(0, limit=1))
    identity = app.queue("q").send({"order": 1})
    with working_as(kind, app):
        (record,) = eventually(lambda: lines(caplog, "dead "))
    assert len(lines(caplog, "failed ")) == 1
    assert record.levelno == logging.ERROR
    assert (
        f"queue=q id={identity} reason=max_failures failures=2 deliveries=0 error_class=KeyError" in record.getMessage()
    )
    assert "Traceback (most recent call last)" in record.getMessage()
    assert 'message.json()["oder"]' in record.getMessage()


def test_what_a_handler_gave_up_names_its_cause(app, caplog):
    def work(message):
        try:
            message.json()["oder"]
        except KeyError as error:
            raise reliq.Dead("no such order") from error

    app.handler("q")(work)
    app.queue("q").send({"order": 1})
    with working(app):
        (record,) = eventually(lambda: lines(caplog, "dead "))
    assert "reason=rejected" in record.getMessage()
    assert "KeyError: 'oder'" in record.getMessage()
    assert "no such order" in record.getMessage()


def test_a_time_limit_is_one_failure_in_the_log(app, kind, caplog):
    release = []
    if kind == "async":

        @app.handler("q", time_limit=0.1)
        async def work(message):
            import asyncio

            await asyncio.sleep(60)
    else:

        @app.handler("q", time_limit=0.1)
        def work(message):
            eventually(lambda: message.lost)
            release.append(message)
            raise ValueError("told to stop")

    app.queue("q").send("x")
    with working_as(kind, app):
        eventually(lambda: app.queue("q").stats().delayed == 1)
    (record,) = lines(caplog, "failed ")
    assert "error_class=reliq.errors.TimeLimitExceeded" in record.getMessage()


APP = """
import reliq
app = reliq.Reliq()

@app.handler("q", retry=reliq.fixed("1h", limit=1))
def work(message):
    return message.json()["oder"]
"""


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_command_line_shows_failures_as_json_with_tracebacks(app, tmp_path, processes):
    (tmp_path / "shop.py").write_text(APP)
    identity = app.queue("q").send({"order": 1})
    arguments = ("worker", "shop", "--processes", processes, "--log-json", "--tracebacks")
    with process(*arguments, folder=tmp_path, RELIQ_URL=app.url) as child:
        found: dict[str, Any] = {}
        while found.get("id") != identity:
            found = json.loads(child.stderr.readline())
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    assert (found["level"], found["queue"], found["failures"], found["retry_in_seconds"]) == ("WARNING", "q", 1, 3600)
    assert (found["error_class"], found["error"]) == ("KeyError", "'oder'")
    assert "in work" in found["exception"]


@pytest.mark.parametrize("once", [False, True])
def test_a_coroutine_that_is_never_awaited_is_a_failure_and_no_ack(app, once, caplog):
    async def work(message):
        """Runs only when it is awaited."""

    @app.handler("q", once=once)
    def forget_to_await(message):
        return work(message)

    app.queue("q").send("x")
    with working(app):
        (record,) = eventually(lambda: lines(caplog, "failed "))
    assert "make the handler an async def" in record.getMessage()


def test_a_message_that_kills_its_workers_is_logged_when_it_dies(app, client, caplog):
    """The monitor buries it: nothing of it is in a worker's log."""
    queue = app.queue("q")
    queue.configure(max_deliveries=1)
    identity = queue.send("poison")
    consumer = queue.consumer()
    consumer.claim()
    client.delete(QueueKeys("q").lease(consumer.id))
    monitor = Monitor(Store(app.url))
    eventually(lambda: monitor.scan() and queue.stats().dead)
    (record,) = lines(caplog, "dead ")
    assert (record.levelno, record.name) == (logging.ERROR, "reliq.monitor")
    assert f"queue=q id={identity} reason=max_deliveries failures=0 deliveries=1" in record.getMessage()


def test_a_failure_that_cannot_be_noted_ends_the_worker(app, kind, caplog, monkeypatch):
    """As by a filter of logging that raises: the message would stay with the worker for as long as that lives."""

    def broken(*_):
        raise ZeroDivisionError("in a filter")

    monkeypatch.setattr("reliq.worker.runner.after_error", broken)
    bind(app, kind, lambda message: message.json()["oder"])
    app.queue("q").send({"order": 1})
    with working_as(kind, app) as worker:
        eventually(lambda: worker._stops)
        (record,) = eventually(lambda: lines(caplog, "crashed queue=q"))
    assert "in a filter" in caplog.text
    assert record.levelno == logging.CRITICAL
