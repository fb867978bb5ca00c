"""Where tracing hooks in: around a send, and around a handler. Nothing is traced until `reliq.otel.instrument()`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from reliq.message import Message, NewMessage


class Tracer(Protocol):
    """Makes spans."""

    def sending(self, queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
        """Lasts as long as the send; puts the span's context into the messages' headers."""

    def traced(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """The handler, def or async def, with a span around each run."""


active: Tracer | None = None  #: one a process, as OpenTelemetry's own provider is

_UNTRACED = nullcontext()


def sending(queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
    """The active tracer's context around a send."""
    return _UNTRACED if active is None else active.sending(queue, messages)


def traced(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """The handler as a worker shall call it."""
    return handler if active is None else active.traced(handler)
