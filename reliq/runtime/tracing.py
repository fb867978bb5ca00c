"""The hooks of tracing, around a send and around a handler. Nothing is traced before `reliq.otel.instrument()`."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from reliq.model.message import Message
from reliq.model.outgoing import NewMessage


class Tracer(Protocol):
    """Creates spans for sends and handlers."""

    def sending(self, queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
        """Return a context for a send, which puts the context of its span into the headers of the messages."""

    def traced(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """Return the handler, def or async def, with a span around each run."""

    def flush(self) -> None:
        """Export the finished spans before the process ends."""


active: Tracer | None = None  #: one per process, like OpenTelemetry's own provider

_UNTRACED = nullcontext()
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def sending(queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
    """Return the active tracer's context for a send."""
    return _UNTRACED if active is None else active.sending(queue, messages)


def traced(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """Return the handler as the worker must call it."""
    return handler if active is None else active.traced(handler)


def flush() -> None:
    """Export the finished spans; for a process that ends without running its exit handlers."""
    if active is not None:
        active.flush()


def is_traceparent(text: str) -> bool:
    """Whether the text is a valid W3C `traceparent`."""
    return _TRACEPARENT.fullmatch(text) is not None
