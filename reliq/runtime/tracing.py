"""Where tracing hooks in: around a send, and around a handler. Nothing is traced until `reliq.otel.instrument()`."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from reliq.model.message import Message
from reliq.model.outgoing import NewMessage


class Tracer(Protocol):
    """Makes spans."""

    def sending(self, queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
        """Lasts as long as the send; puts the span's context into the messages' headers."""

    def traced(self, handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
        """The handler, def or async def, with a span around each run."""

    def flush(self) -> None:
        """Hand over what was traced: this process ends."""


active: Tracer | None = None  #: one a process, as OpenTelemetry's own provider is

_UNTRACED = nullcontext()
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def sending(queue: str, messages: Sequence[NewMessage]) -> AbstractContextManager[None]:
    """The active tracer's context around a send."""
    return _UNTRACED if active is None else active.sending(queue, messages)


def traced(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    """The handler as a worker shall call it."""
    return handler if active is None else active.traced(handler)


def flush() -> None:
    """Before a process ends without saying goodbye."""
    if active is not None:
        active.flush()


def is_traceparent(text: str) -> bool:
    """Whether it is a W3C `traceparent` that leads to a span."""
    return _TRACEPARENT.fullmatch(text) is not None
