"""The order in which the hooks of middleware are called, for runs and for sends."""

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from inspect import isawaitable
from typing import Any, TypeVar

from reliq.model.message import Message
from reliq.model.middleware import Middleware
from reliq.model.policy import RunOver
from reliq.model.result import Answer
from reliq.runtime.origin import itself

S = TypeVar("S")
T = TypeVar("T")

log = logging.getLogger("reliq.middleware")

HandlerFunction = Callable[[Message], Any]


def around(
    chain: Sequence[Middleware[S]], subject: S, inner: Generator[Any, Any, T], call: Callable[..., Any]
) -> Generator[Any, Any, T]:
    """Run `inner` with the hooks around it; yields what it yields, and what the hooks return to be awaited.

    `call` calls a hook.
    """
    begun: list[Middleware[S]] = []
    try:
        for one in chain:
            yield from _waited(call(_call_hook, one, "before", subject))
            begun.append(one)
        result = yield from inner
        returned = result.value if isinstance(result, Answer) else result
        while begun:
            _check_time(subject)
            yield from _waited(call(_call_hook, begun.pop(), "after", subject, returned))
        return result
    except GeneratorExit:  # abandoned: nothing can be awaited any more
        raise
    except BaseException as error:
        about: tuple[BaseException, ...] = (_overran(subject) or itself(error),)
        hook, stays = "on_error", "first error"
        if isinstance(error, RunOver):
            hook, stays, about = "on_suspend", "suspension", ()
        while begun:
            one = begun.pop()
            try:
                yield from _waited(call(_call_hook, one, hook, subject, *about))
            except (Exception, SystemExit):  # not Ctrl-C, and not a cancellation
                log.exception("%s of middleware %s failed; the %s stays", hook, type(one).__qualname__, stays)
        raise


def _call_hook(one: Middleware[Any], hook: str, *arguments: Any) -> Awaitable[None] | None:
    """Call a hook; raises TypeError if it returns a value, which would have no meaning."""
    if hook == "on_suspend" and not hasattr(one, hook):
        return None
    returned = getattr(one, hook)(*arguments)
    if returned is None or isawaitable(returned):
        return returned
    raise TypeError(
        f"{hook} of middleware {type(one).__qualname__} returned a value of type {type(returned).__name__}: a hook "
        "returns nothing, so remove its return"
    )


def _waited(awaitable: Any) -> Generator[Any, Any, None]:
    if awaitable is not None:
        yield awaitable


def around_runs(function: HandlerFunction, chain: Sequence[Middleware[Message]], is_async: bool) -> HandlerFunction:
    """Return the handler with the hooks around each run."""

    def run(message: Message) -> Any:
        steps = around(chain, message, _run(function, message), _call)
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        except RuntimeError as error:
            raised = itself(error)
        else:
            steps.close()
            raised = TypeError(
                "a hook of a middleware must be awaited, and the handler is not async: make the hook a def"
            )
        raise raised

    async def run_async(message: Message) -> Any:
        steps = around(chain, message, _run_async(function, message), _call)
        try:
            awaitable = next(steps)
            while True:
                try:
                    answer = await awaitable
                except BaseException as error:  # noqa: BLE001  a cancellation too: on_error must know
                    awaitable = steps.throw(error)
                else:
                    awaitable = steps.send(answer)
        except StopIteration as stop:
            return stop.value
        finally:
            steps.close()

    return run_async if is_async else run


def _run(function: HandlerFunction, message: Message) -> Generator[Any, Any, Any]:
    yield from ()
    return function(message)


def _run_async(function: HandlerFunction, message: Message) -> Generator[Any, Any, Any]:
    return (yield function(message))


def _check_time(subject: object) -> None:
    if late := _overran(subject):
        raise late


def _overran(subject: object) -> BaseException | None:
    """Return the failure of a run beyond its time limit: its message has failed, whatever the handler did then."""
    return getattr(subject, "overran", None)


def _call(hook: Callable[..., Any], *arguments: Any) -> Any:
    return hook(*arguments)
