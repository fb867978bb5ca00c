"""OpenTelemetry: a span for each send and each run of a handler, connected through the message's headers.

    import reliq.otel
    reliq.otel.instrument()          # before the worker starts; `RELIQ_OTEL=1 reliq ...` does the same

Spans follow the semantic conventions for messaging and go to whatever tracer provider the process has set up. The
context travels as the W3C headers `traceparent` and `tracestate`: from a producer in Python, over HTTP, or from a
column of Spark that has them. Needs the extra `otel`. No body and no text of an error becomes part of a span.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.util.types import Attributes

import reliq
from reliq import tracing
from reliq.message import Message, NewMessage

_NOTHING = Context()


def instrument(provider: TracerProvider | None = None) -> None:
    """Trace every send and handler of this process from now on; by default with the global provider."""
    tracing.active = _Tracer(trace.get_tracer("reliq", reliq.__version__, provider))


def uninstrument() -> None:
    """Trace nothing any more. A worker that has started keeps the handlers it began with."""
    tracing.active = None


@contextmanager
def processing(message: Message) -> Iterator[Span]:
    """A span around code that handles a message of a `Consumer` by hand."""
    active = tracing.active
    if not isinstance(active, _Tracer):
        yield trace.INVALID_SPAN
        return
    with active.processing(message) as span:
        yield span


class _Tracer:
    """reliq's spans, made by a tracer of OpenTelemetry."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def sending(self, queue: str, messages: Sequence[NewMessage]) -> Iterator[None]:
        parent, links = _parents(messages)
        span = self._tracer.start_span(
            f"send {queue}", context=parent, kind=SpanKind.PRODUCER, links=links, attributes=_of_send(queue, messages)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=trace.set_span_in_context(span, _NOTHING))
        if carrier:
            for message in messages:
                message.headers = {**message.headers, **carrier}
        with _ended(span):
            yield

    @contextmanager
    def processing(self, message: Message) -> Iterator[Span]:
        span = self._tracer.start_span(
            f"process {message.queue}",
            context=propagate.extract(message.headers, context=_NOTHING),
            kind=SpanKind.CONSUMER,
            attributes=_of_run(message),
        )
        with trace.use_span(span, record_exception=False, set_status_on_exception=False), _ended(span):
            yield span

    def traced(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

            async def run_async(message: Message) -> Any:
                with self.processing(message):
                    return await handler(message)

            return functools.update_wrapper(run_async, handler)

        def run(message: Message) -> Any:
            with self.processing(message):
                return handler(message)

        return functools.update_wrapper(run, handler)


@contextmanager
def _ended(span: Span) -> Iterator[None]:
    """End the span; after an error with its class, and never its text: that may quote a body."""
    try:
        yield
    except BaseException as error:
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        span.set_attribute("error.type", name)
        span.set_status(StatusCode.ERROR)
        raise
    finally:
        span.end()


def _parents(messages: Sequence[NewMessage]) -> tuple[Context | None, list[Link]]:
    """The span that runs here is the parent; else the one that all messages came with; links to the others."""
    contexts = [_span_context(message.headers) for message in messages if message.headers]
    came_with = {(one.trace_id, one.span_id): one for one in contexts if one.is_valid}
    if trace.get_current_span().get_span_context().is_valid or len(came_with) != 1:
        return None, [Link(one) for one in came_with.values()]
    (only,) = came_with.values()
    return trace.set_span_in_context(trace.NonRecordingSpan(only), _NOTHING), []


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
        "messaging.reliq.failures": message.failures,
        "messaging.reliq.deliveries": message.deliveries,
    }


def _common(operation: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": "reliq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }
