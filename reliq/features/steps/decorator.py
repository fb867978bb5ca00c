"""A decorator for functions that are steps of a handler."""

import functools
from collections.abc import Callable
from typing import Any

from reliq.model.backoff import Backoff
from reliq.model.message import Message
from reliq.model.policy import ErrorsGiven

Function = Callable[..., Any]


def step(
    function: Function | None = None,
    *,
    name: str | None = None,
    retry: Backoff | int | None = None,
    retry_on: ErrorsGiven = Exception,
    at_most_once: bool = False,
) -> Any:
    """Make a function a step: called with the message as first argument, it runs as `message.step` says.

        @reliq.step(retry=reliq.exponential(first=1, limit=3))
        def charge(message, order): ...

    `name`: by default that of the function.
    """

    def decorated(one: Function) -> Function:
        called = name or one.__name__

        @functools.wraps(one)
        def run(message: Message, *arguments: Any) -> Any:
            return message.step(
                called, one, message, *arguments, retry=retry, retry_on=retry_on, at_most_once=at_most_once
            )

        return run

    return decorated if function is None else decorated(function)
