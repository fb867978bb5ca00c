"""What surrounds each send: what it takes for granted is made certain, and middleware runs around it."""

import contextvars
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from reliq.errors import InvalidMessage
from reliq.model.middleware import Middleware, Sending
from reliq.model.outgoing import NewMessage, check_again
from reliq.ops import Await, Steps
from reliq.protocol.batch import RawBatch
from reliq.protocol.durability import Terms, check_possible
from reliq.protocol.producer import ProducerPool
from reliq.runtime import tracing
from reliq.runtime.middleware import around

T = TypeVar("T")


def ready(pool: ProducerPool, terms: Terms, messages: Sequence[NewMessage]) -> Steps[None]:
    """Raise DurabilityUnavailable, before anything is sent, and ask the server for its time if a `ttl` needs it."""
    if terms.wanted is not None:
        yield from check_possible(terms.wanted)
    if not pool.clock.known and not isinstance(messages, RawBatch) and any(one.ttl is not None for one in messages):
        yield from pool.clock.ask()


def around_send(
    pool: ProducerPool, destination: str, messages: Sequence[NewMessage], steps: Steps[T], *, prepared: bool = False
) -> Steps[T]:
    """Return the steps with the middleware of the process and of the application around them, if there is any.

    What its hooks leave is checked again, and raises InvalidMessage.
    """
    if tracing.active is None and not pool.middleware:
        return steps
    chain = (*tracing.sends(), *pool.middleware)
    return _around(chain, Sending(destination, messages, prepared), _checked(messages, pool.max_body, steps))


def _checked(messages: Sequence[NewMessage], max_body: int, steps: Steps[T]) -> Steps[T]:
    for place, message in enumerate(messages):
        try:
            check_again(message, max_body)
        except InvalidMessage as error:
            which = f"message {place} of the call, as its middleware has left it"
            raise InvalidMessage(f"{which}: {error}; nothing was sent", place if len(messages) > 1 else None) from None
    return (yield from steps)


def _around(chain: Sequence[Middleware[Sending]], sending: Sending, steps: Steps[T]) -> Steps[T]:
    context = contextvars.copy_context()  # for the hooks alone: the sender's own variables stay as they are

    def call(hook: Any, *arguments: Any) -> Any:
        awaitable = context.run(hook, *arguments)
        return None if awaitable is None else Await(0.0, awaitable, context)

    whole: Generator[Any, Any, T] = around(chain, sending, steps, call)
    return (yield from whole)
