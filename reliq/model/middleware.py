"""Middleware: an application's own code around each run of a handler, and around each send."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from reliq.errors import InvalidHandler
from reliq.model.outgoing import NewMessage
from reliq.model.signatures import check_callable

S_contra = TypeVar("S_contra", contravariant=True)

Awaited = Awaitable[None] | None
CommitHook = Callable[[str, str], object]  #: is called with the queue and the id


@dataclass(frozen=True, slots=True)
class Sending:
    """A send: one call, with its messages. A middleware may change their headers and bodies before they are encoded.

    `destination`: the queue, or the routing key of a publish. `prepared`: no consumer sees them before their commit.
    """

    destination: str
    messages: Sequence[NewMessage]
    prepared: bool = False


class Middleware(Protocol[S_contra]):
    """Code around runs (`Middleware[reliq.Message]`) or sends (`Middleware[reliq.Sending]`): override what you need.

    Each hook is a `def`, or an `async def` where the handler, or the application that sends, is asynchronous. The
    hooks of a run and the handler share their context variables. Errors:

    - `before` and `after` may raise: then the run has failed, or the send raises that error. `reliq.Retry` and
      `reliq.Dead` decide about a message as in a handler.
    - `on_error` is called instead of `after`. What it raises is logged, and the first error stays.
    - `on_suspend` is called instead of both. What it raises is logged.
    """

    def before(self, subject: S_contra, /) -> Awaited:
        """Prepare a run or a send; the middleware that was registered first comes first."""
        return None

    def after(self, subject: S_contra, result: Any, /) -> Awaited:
        """Finish what has succeeded, in reverse order. `result`: of the handler, or of the send."""
        return None

    def on_error(self, subject: S_contra, error: BaseException, /) -> Awaited:
        """Finish what has failed, in reverse order."""
        return None

    def on_suspend(self, subject: S_contra, /) -> Awaited:
        """Finish a run that ended without an outcome, in reverse order: its message sleeps or waits, and runs again."""
        return None


_ARGUMENTS = {
    "before": ("the subject",),
    "after": ("the subject", "the result"),
    "on_error": ("the subject", "the error"),
    "on_suspend": ("the subject",),
}


def check_middleware(middleware: object, *, may_await: bool, where: str) -> None:
    """Raise InvalidHandler unless all hooks can be called and, if need be, awaited; `where`: what cannot await."""
    name = type(middleware).__qualname__
    if not any(hasattr(middleware, hook) for hook in _ARGUMENTS):
        raise InvalidHandler(f"{middleware!r} is no middleware: it has none of {', '.join(_ARGUMENTS)}")
    for hook, arguments in _ARGUMENTS.items():
        function = getattr(middleware, hook, None)
        if function is None and hook == "on_suspend":  # of a class that was written before there was one
            continue
        check_callable(function, f"{hook} of middleware {name}", *arguments)
        if inspect.iscoroutinefunction(function) and not may_await:
            raise InvalidHandler(f"{hook} of middleware {name} is async, and {where} is not: make it a def")
