"""A decorator for functions that are steps of a handler."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, overload

from reliq.model.backoff import Backoff, read_backoff
from reliq.model.message import Message
from reliq.model.policy import ErrorsGiven

P = ParamSpec("P")
Given = Callable[Concatenate[Message, P], object]
Decorated = Callable[Concatenate[Message, P], Any]  #: the result, in async handlers to be awaited


@overload
def step(function: Given[P]) -> Decorated[P]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Backoff | int | None = None,
    retry_on: ErrorsGiven = Exception,
    at_most_once: bool = False,
) -> Callable[[Given[P]], Decorated[P]]: ...
def step(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    retry: Backoff | int | None = None,
    retry_on: ErrorsGiven = Exception,
    at_most_once: bool = False,
) -> Any:
    """Make a function a step: called with the message as first argument, it runs as `message.step` says.

        @reliq.step(retry=reliq.exponential(first=1, limit=3))
        def charge(message, order): ...

    `name`: by default that of the function. Raises InvalidHandler if `retry` is no back-off.
    """

    def decorated(one: Callable[..., Any]) -> Callable[..., Any]:
        called = name or one.__name__
        backoff = None if retry is None else read_backoff(retry, f"retry of step {called!r}")

        @functools.wraps(one)
        def run(message: Message, *arguments: Any, **named: Any) -> Any:
            call = functools.wraps(one)(functools.partial(one, **named))
            return message.step(
                called, call, message, *arguments, retry=backoff, retry_on=retry_on, at_most_once=at_most_once
            )

        return run

    return decorated if function is None else decorated(function)
