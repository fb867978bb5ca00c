"""A handler as a worker calls it: its body is upgraded and read, middleware is around it, and it may be guarded."""

from dataclasses import replace
from typing import Any

from reliq.model.handlers import Handler, Handlers
from reliq.model.message import Message
from reliq.model.middleware import check_middleware
from reliq.model.policy import Again
from reliq.model.result import Answer
from reliq.model.signatures import HandlerFunction, refuse_unrun
from reliq.model.upgrades import reading
from reliq.runtime import tracing
from reliq.runtime.middleware import around_runs
from reliq.transport.store import Store
from reliq.worker.once import guarded


def checking(function: HandlerFunction, is_async: bool, kept: bool) -> HandlerFunction:
    """Return the function with its return values checked; `kept`: as answers, but for Again."""

    def run(message: Message) -> Any:
        return checked(function(message))

    async def run_async(message: Message) -> Any:
        return checked(await function(message))

    def checked(result: object) -> object:
        refuse_unrun(result)
        return Answer(result) if kept and not isinstance(result, Again) else result

    return run_async if is_async else run


def called(handler: Handler, handlers: Handlers, store: Store) -> Handler:
    """Return the handler with the function to call. One that takes the message, without options, stays as it is.

    Raises InvalidHandler.
    """
    function, upgrades = handler.function, handlers.upgrades_of(handler.queue)
    upgrades.check()
    if handler.typed is not None or upgrades.latest > 1:
        function = reading(function, handler.typed, upgrades)
    for one in handlers.around_runs:
        check_middleware(one, may_await=handler.is_async, where=f"the handler of queue {handler.queue!r}")
    chain, is_kept = (*tracing.runs(), *handlers.around_runs), handler.result is not None
    if chain or is_kept:
        function = checking(function, handler.is_async, is_kept)
    if chain:  # around that: a result that cannot be kept is an error of the handler
        function = around_runs(function, chain, handler.is_async)
    handler = replace(handler, function=function)
    return replace(handler, function=guarded(handler, store)) if handler.once else handler
