"""`@app.check`: who decides about prepared messages after their producer fell silent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from reliq.errors import InvalidHandler
from reliq.model.handlers import Handlers, checked_function
from reliq.model.keys import check_name
from reliq.model.signatures import HandlerFunction, check_called, name_of
from reliq.model.upgrades import reading
from reliq.protocol.application import Application

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CheckBack:
    """The function that decides about the prepared messages of a queue."""

    queue: str
    function: HandlerFunction


class Check(Application):
    """What synchronous and asyncio applications share of prepared messages."""

    def check(self, queue: str) -> Callable[[F], F]:
        """Bind a function (def or async def) that decides about prepared messages whose producer made no decision.

        The function takes the message and returns True (commit), False (roll back) or None (not known yet, ask again).
        It runs in the workers of this application. Raises InvalidHandler for a second one of a queue.
        """
        check_called(queue, "check", '"{}"')

        def bind(function: F) -> F:
            _add(self.handlers, queue, function)
            return function

        return bind


def _add(handlers: Handlers, queue: str, function: HandlerFunction) -> None:
    """Register the check-back of a queue; raises InvalidHandler for a second one and for a non-function."""
    check_name(queue)
    typed = checked_function(function, f"the check-back of queue {queue!r}")
    for one in handlers.declared(CheckBack):
        if one.queue == queue:
            first = name_of(one.function)
            raise InvalidHandler(f"queue {queue!r} has two check-backs, {first} and {name_of(function)}")
    checked = CheckBack(queue, reading(function, typed, handlers.upgrades_of(queue)))
    handlers.declare(checked, serves=queue)
