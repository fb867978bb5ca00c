"""Middleware around the steps of a send."""

import contextvars
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage
from reliq.ops import Await, Steps
from reliq.runtime import tracing
from reliq.runtime.middleware import around

T = TypeVar("T")


def around_send(
    own: Sequence[Middleware[Sending]], destination: str, messages: Sequence[NewMessage], steps: Steps[T]
) -> Steps[T]:
    """Return the steps with the middleware of the process and of the application around them, if there is any."""
    if tracing.active is None and not own:
        return steps
    chain = (*tracing.sends(), *own)
    return _around(chain, Sending(destination, messages), steps)


def _around(chain: Sequence[Middleware[Sending]], sending: Sending, steps: Steps[T]) -> Steps[T]:
    context = contextvars.copy_context()  # for the hooks alone: the sender's own variables stay as they are

    def call(hook: Any, *arguments: Any) -> Any:
        awaitable = context.run(hook, *arguments)
        return None if awaitable is None else Await(0.0, awaitable, context)

    whole: Generator[Any, Any, T] = around(chain, sending, steps, call)
    return (yield from whole)
