"""The tracer of the process, a middleware of all its sends and runs. None before `reliq.otel.instrument()`."""

import re
from typing import Protocol

from reliq.model.message import Message
from reliq.model.middleware import Middleware, Sending


class Tracer(Protocol):
    """Creates spans for sends and runs."""

    @property
    def sends(self) -> Middleware[Sending]:
        """A middleware that puts the context of its span into the headers of the messages."""

    @property
    def runs(self) -> Middleware[Message]:
        """A middleware around the runs of handlers."""

    def flush(self) -> None:
        """Export the finished spans before the process ends."""


active: Tracer | None = None  #: one per process, like OpenTelemetry's own provider

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def sends() -> tuple[Middleware[Sending], ...]:
    """Return the active tracer's middleware around sends, if there is one."""
    return () if active is None else (active.sends,)


def runs() -> tuple[Middleware[Message], ...]:
    """Return the active tracer's middleware around runs, if there is one."""
    return () if active is None else (active.runs,)


def flush() -> None:
    """Export the finished spans; for a process that ends without running its exit handlers."""
    if active is not None:
        active.flush()


def is_traceparent(text: str) -> bool:
    """Whether the text is a valid W3C `traceparent`."""
    return _TRACEPARENT.fullmatch(text) is not None
