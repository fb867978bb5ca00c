"""Spans: one a send, one a run, connected through the headers."""

import contextlib
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import reliq
from reliq import otel
from reliq.worker.calling import called
from tests.support.workers import eventually, working

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans():
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel.instrument(provider)
    yield lambda *names: [span for span in exporter.get_finished_spans() if not names or span.name in names]
    otel.uninstrument()
    provider.shutdown()


@pytest.fixture
def tracer(spans):
    active: Any = reliq.runtime.tracing.active
    return active.runs._tracer


def headers(app):
    with app.queue("orders").consumer() as consumer:
        messages = consumer.claim(limit=10)
        consumer.ack(*messages)
    return [message.headers for message in messages]


def test_a_send_has_a_span_of_the_messaging_conventions(app, spans):
    identity = app.queue("orders").send("four")
    (span,) = spans()
    assert (span.name, span.kind, span.status.status_code) == ("send orders", SpanKind.PRODUCER, StatusCode.UNSET)
    assert dict(span.attributes) == {
        "messaging.system": "reliq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": identity,
        "messaging.message.body.size": 4,
    }


def test_a_batch_is_one_span_and_all_its_messages_carry_it(app, spans):
    app.queue("orders").send_many(["a", "b", "c"])
    (span,) = spans()
    assert span.attributes["messaging.batch.message_count"] == 3
    assert {one["traceparent"].split("-")[2] for one in headers(app)} == {f"{span.context.span_id:016x}"}


@pytest.mark.parametrize("kind", ["def", "async def", "threads"])
def test_a_run_continues_the_trace_of_its_send_through_the_headers(app, spans, tracer, kind):
    seen = []

    if kind == "async def":

        @app.handler("orders")
        async def handle(message):
            seen.append(trace.get_current_span().get_span_context().span_id)
    else:

        @app.handler("orders")
        def handle(message):
            seen.append(trace.get_current_span().get_span_context().span_id)

    with tracer.start_as_current_span("a request"):
        app.queue("orders").send("x", headers={"mine": "kept"})
    with working(app, threads=2 if kind == "threads" else 1):
        eventually(lambda: spans("process orders"))
    request, send, run = spans("a request") + spans("send orders") + spans("process orders")
    assert request.context.trace_id == send.context.trace_id == run.context.trace_id
    assert (send.parent.span_id, run.parent.span_id) == (request.context.span_id, send.context.span_id)
    assert run.kind is SpanKind.CONSUMER
    assert seen == [run.context.span_id]


def test_a_context_that_came_with_the_message_is_the_parent(app, spans):
    """As it comes over HTTP, or in a column of Spark."""
    app.queue("orders").send("x", headers={"traceparent": PARENT, "mine": "kept"})
    (span,) = spans()
    assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    (carried,) = headers(app)
    assert carried["mine"] == "kept"
    assert carried["traceparent"].split("-")[2] == f"{span.context.span_id:016x}"


def test_contexts_of_several_origins_become_links(app, spans):
    other = PARENT.replace("b7ad", "c7ad")
    messages = [reliq.NewMessage("x", headers={"traceparent": one}) for one in (PARENT, other, PARENT)]
    app.queue("orders").send_many(messages)
    (span,) = spans()
    assert span.parent is None
    assert {f"{link.context.span_id:016x}" for link in span.links} == {
        PARENT.split("-")[2],
        other.split("-")[2],
    }


@pytest.mark.parametrize("current", [False, True])
def test_messages_of_several_traces_keep_their_own(app, spans, tracer, current):
    """As those that a relay of the outbox sends together."""
    other = PARENT.replace("0af7", "1af7")
    with tracer.start_as_current_span("a relay") if current else contextlib.nullcontext():
        app.queue("orders").send_many([reliq.NewMessage("x", headers={"traceparent": one}) for one in (PARENT, other)])
        app.queue("orders").send("of none")
    assert len({one.context.trace_id for one in spans()}) == (1 if current else 2)
    first, second, third = (one["traceparent"] for one in headers(app))
    assert (first, second) == (PARENT, other)
    assert third.split("-")[1] not in (PARENT.split("-")[1], other.split("-")[1])


def test_a_failure_shows_its_class_and_never_its_text(app, spans):
    @app.handler("orders", retry=reliq.fixed(0.01, limit=1))
    def handle(message):
        raise ValueError("secret 4711")

    app.queue("orders").send("x")
    with working(app, monitor=True):
        eventually(lambda: app.queue("orders").stats().dead == 1)
    first, second = spans("process orders")
    assert (first.attributes["error.type"], first.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert [span.attributes["messaging.reliq.message.failures"] for span in (first, second)] == [0, 1]
    assert first.context.trace_id == second.context.trace_id
    assert not any("secret" in span.to_json() for span in spans())


def test_a_send_that_is_refused_is_an_error(app, spans):
    app.queue("orders").configure(max_length=1)
    app.queue("orders").send("x")
    with pytest.raises(reliq.QueueFull):
        app.queue("orders").send("x")
    assert spans()[-1].attributes["error.type"] == "reliq.errors.QueueFull"


def test_a_message_of_a_consumer_can_be_traced_by_hand(app, spans):
    app.queue("orders").send("x")
    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
        with otel.processing(message):
            consumer.ack(message)
    send, run = spans("send orders") + spans("process orders")
    assert run.parent.span_id == send.context.span_id


def test_off_leaves_headers_and_handlers_as_they_are(app):
    def handler(message):
        return None

    app.handler("orders")(handler)
    (plain,) = app.handlers
    assert called(plain, app.handlers, app.store).function is handler
    app.queue("orders").send("x")
    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
        assert message.headers == {}
        with otel.processing(message) as span:
            assert not span.is_recording()


def test_the_library_does_not_load_its_tracing_by_itself():
    code = "import sys, reliq, reliq.worker; print('reliq.otel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
