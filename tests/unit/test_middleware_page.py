"""The examples of docs/how-to/middleware.md, run as they are printed."""

import re
from pathlib import Path
from typing import Any

import pytest

import reliq
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.runtime.failures import failures
from reliq.testing import fake, work_off

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "middleware.md"
SIGNATURES, SENTRY, REQUEST_ID = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SECRET = 4711


def run(example: str, app: reliq.Reliq) -> dict[str, Any]:
    names: dict[str, Any] = {"reliq": reliq, "app": app}
    exec(example, names)
    return names


@pytest.fixture
def app() -> reliq.Reliq:
    return fake(reliq.Reliq())


def test_the_hooks_are_called_as_they_are_printed(app):
    run(SIGNATURES, app)
    app.handler("orders", retry=reliq.fixed("1h"))(lambda message: message.json()["number"])
    app.queue("orders").send_many([{"number": 1}, {}])
    assert work_off(app) == 2
    assert app.queue("orders").stats().counters["acked"] == 1


@pytest.fixture
def as_logged():
    """Sentry's settings of what it ignores, as they were."""
    from sentry_sdk.integrations import logging as of_sentry

    yield of_sentry
    of_sentry.unignore_logger("reliq.worker")


def test_a_death_that_a_worker_logs_is_no_event_of_its_own(app, as_logged):
    """Sentry takes each error line of a log for an event; that of each dead letter has the same text: one issue."""
    import sentry_sdk
    from sentry_sdk.transport import Transport

    events: list[Any] = []

    class Capture(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            events.extend(item.payload.json for item in envelope.items if item.type == "event")

    @app.handler("orders", retry=0)
    def ship(message):
        raise KeyError("no such order")

    run(SENTRY, app)
    app.queue("orders").send("x")
    integrations = [as_logged.LoggingIntegration()]
    sentry_sdk.init(
        dsn="http://key@localhost/1", transport=Capture, default_integrations=False, integrations=integrations
    )
    try:
        work_off(app)
        failures.died("orders", Message.decode("orders", NewMessage("x").element(1)).buried("max_failures"))
    finally:
        sentry_sdk.init()
    assert [event["exception"]["values"][-1]["type"] for event in events] == ["KeyError"]


def test_an_error_is_reported_once_without_the_body(app):
    import sentry_sdk
    from sentry_sdk.transport import Transport

    events: list[Any] = []

    class Capture(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            events.extend(item.payload.json for item in envelope.items)

    run(SENTRY, app)

    @app.handler("orders", retry=reliq.fixed("1h"))
    def ship(message):
        raise reliq.Retry if message.json()["later"] else KeyError("no such order")

    app.queue("orders").send_many([{"later": True}, {"later": False, "secret": SECRET}])
    sentry_sdk.init(
        dsn="http://key@localhost/1", transport=Capture, default_integrations=False, include_local_variables=False
    )
    try:
        work_off(app)
    finally:
        sentry_sdk.init()
    (event,) = events
    assert event["exception"]["values"][-1]["type"] == "KeyError"
    assert event["tags"] == {"queue": "orders"}
    assert event["contexts"]["message"]["failures"] == 0
    assert str(SECRET) not in str(event)


def test_a_request_id_goes_on_through_the_queues(app):
    names, seen = run(REQUEST_ID, app), []

    @app.handler("orders")
    def ship(message):
        seen.append(names["request_id"].get())
        app.queue("mails").send("shipped")

    @app.handler("mails")
    def mail(message):
        seen.append(names["request_id"].get())

    token = names["request_id"].set("r-7")
    app.queue("orders").send("x")
    names["request_id"].reset(token)
    own = app.queue("orders").send("x")
    work_off(app)
    assert sorted(seen) == sorted(["r-7", "r-7", own, own])
