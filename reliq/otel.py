"""OpenTelemetry: a span for each send and each run of a handler, connected through the message's headers.

    import reliq.otel
    reliq.otel.instrument()          # before the worker starts; `RELIQ_OTEL=1 reliq ...` does the same

Spans follow the semantic conventions for messaging and go to the tracer provider of the process. The
context travels as the W3C headers `traceparent` and `tracestate`: from a producer in Python, over HTTP, or from a
Spark job that has them as options or in a column. Needs the extra `otel`. No body and no text of an error becomes
part of a span.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

try:
    from opentelemetry import context as context_api
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.util.types import Attributes
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.otel", "otel", error) from None

from reliq._version import __version__
from reliq.model.message import Message
from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage
from reliq.model.policy import RunOver
from reliq.runtime import tracing

_NOTHING = Context()
_FLUSH_FOR = 5_000  #: milliseconds
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def instrument(provider: TracerProvider | None = None) -> None:
    """Trace every send and handler of this process from now on; by default with the global provider."""
    provider = provider or trace.get_tracer_provider()
    tracing.active = _Tracer(trace.get_tracer("reliq", __version__, provider), provider)


def from_environment() -> None:
    """Start tracing as RELIQ_OTEL=1 demands, with the collector named by OpenTelemetry's own variables, if any.

    Without OTEL_EXPORTER_OTLP_ENDPOINT the spans go to the provider of the application or `opentelemetry-instrument`.
    """
    if any(os.environ.get(name) for name in _ENDPOINTS):
        trace.set_tracer_provider(_exporting())
    instrument()


def _exporting() -> TracerProvider:
    """Return a provider that sends its spans to the collector of OpenTelemetry's own variables."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider as Exporting
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        from reliq.extras import missing_extra

        raise missing_extra("the export of spans", "otel", error) from None
    provider = Exporting()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def uninstrument() -> None:
    """Stop tracing. A running worker keeps the handlers with which it started."""
    tracing.active = None


def context() -> dict[str, str]:
    """Return the headers of the current span, for messages sent by other means, such as a Spark job."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


@contextmanager
def processing(message: Message) -> Iterator[Span]:
    """Open a span around code that handles a message of a `Consumer` by hand."""
    active = tracing.active
    if not isinstance(active, _Tracer):
        yield trace.INVALID_SPAN
        return
    active.runs.before(message)
    try:
        yield trace.get_current_span()
    except RunOver:
        active.runs.on_suspend(message)
        raise
    except BaseException as error:
        active.runs.on_error(message, error)
        raise
    active.runs.after(message, None)


class _Tracer:
    """Creates reliq's spans with a tracer of OpenTelemetry."""

    def __init__(self, tracer: trace.Tracer, provider: TracerProvider) -> None:
        self.sends = _Sends(tracer)
        self.runs = _Runs(tracer)
        self._provider = provider

    def flush(self) -> None:
        force_flush = getattr(self._provider, "force_flush", None)  # the SDK has it, the API does not
        if force_flush is not None:
            force_flush(_FLUSH_FOR)


class _Sends(Middleware[Sending]):
    """A span around each send; the headers of the messages carry its context, unless they have one of another trace."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._span: ContextVar[Span] = ContextVar("reliq_send")

    def before(self, sending: Sending) -> None:
        queue, messages = sending.destination, sending.messages
        contexts = [_span_context(message.headers) if message.headers else None for message in messages]
        came_with = [one for one in contexts if one is not None and one.is_valid]
        parent, links = _parents(came_with)
        span = self._tracer.start_span(
            f"send {queue}", context=parent, kind=SpanKind.PRODUCER, links=links, attributes=_of_send(queue, messages)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=trace.set_span_in_context(span, _NOTHING))
        if carrier:
            trace_id = span.get_span_context().trace_id
            for message, own in zip(messages, contexts, strict=True):
                if own is None or not own.is_valid or own.trace_id == trace_id:
                    message.headers = {**message.headers, **carrier}
        self._span.set(span)

    def after(self, sending: Sending, result: Any) -> None:
        self._span.get().end()

    def on_error(self, sending: Sending, error: BaseException) -> None:
        _fail(self._span.get(), error)


class _Open(NamedTuple):
    """The span of a run, and what was the case before it."""

    span: Span
    attached: Token[Context]
    around: "_Open | None"


class _Runs(Middleware[Message]):
    """A span around each run of a handler, which is the current one in it."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._open: ContextVar[_Open | None] = ContextVar("reliq_run", default=None)

    def before(self, message: Message) -> None:
        parent = propagate.extract(message.headers, context=_NOTHING)
        sent = trace.get_current_span(parent).get_span_context()
        span = self._tracer.start_span(
            f"process {message.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            links=[Link(sent)] if sent.is_valid else [],
            attributes=_of_run(message),
        )
        attached = context_api.attach(trace.set_span_in_context(span))
        self._open.set(_Open(span, attached, self._open.get()))

    def after(self, message: Message, result: Any) -> None:
        self._close().end()

    def on_error(self, message: Message, error: BaseException) -> None:
        _fail(self._close(), error)

    def on_suspend(self, message: Message) -> None:
        self._close().end()

    def _close(self) -> Span:
        ended = self._open.get()
        if ended is None:
            return trace.INVALID_SPAN
        context_api.detach(ended.attached)
        self._open.set(ended.around)
        return ended.span


def _fail(span: Span, error: BaseException) -> None:
    """End the span with the class of the error, but never its text, which may quote a body."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    span.set_attribute("error.type", name)
    span.set_status(StatusCode.ERROR)
    span.end()


def _parents(contexts: Iterable[trace.SpanContext]) -> tuple[Context | None, list[Link]]:
    """Return the parent, the current span or else the one shared by all messages, and links to the messages' spans."""
    came_with = {(one.trace_id, one.span_id): one for one in contexts}
    links = [Link(one) for one in came_with.values()]
    if trace.get_current_span().get_span_context().is_valid or len(came_with) != 1:
        return None, links
    (only,) = came_with.values()
    return trace.set_span_in_context(trace.NonRecordingSpan(only), _NOTHING), links


def _span_context(headers: Mapping[str, str]) -> trace.SpanContext:
    return trace.get_current_span(propagate.extract(headers, context=_NOTHING)).get_span_context()


def _of_send(queue: str, messages: Sequence[NewMessage]) -> Attributes:
    attributes: dict[str, str | int] = {**_common("send", queue)}
    if len(messages) == 1:
        attributes["messaging.message.id"] = messages[0].id
        attributes["messaging.message.body.size"] = len(messages[0].body)
    else:
        attributes["messaging.batch.message_count"] = len(messages)
    return attributes


def _of_run(message: Message) -> Attributes:
    return {
        **_common("process", message.queue),
        "messaging.message.id": message.id,
        "messaging.message.body.size": len(message.body),
        "messaging.reliq.message.failures": message.failures,
        "messaging.reliq.message.deliveries": message.deliveries,
        **({"messaging.destination_publish.name": message.routing_key} if message.routing_key else {}),
    }


def _common(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "reliq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }
