"""Handlers of queue q in the three ways that a worker runs them: inline, in threads, on an event loop."""

import contextlib
from collections.abc import Callable
from typing import Any

import reliq
from reliq.worker import Worker
from tests.support.workers import working

KINDS = ("inline", "threads", "async")


def bind(app: reliq.Reliq, kind: str, function: Callable[[reliq.Message], Any], **options: Any) -> None:
    """Make the function the handler of q."""
    handle = function
    if kind == "async":

        async def handle(message: reliq.Message) -> Any:
            return function(message)

    app.handler("q", **options)(handle)


def working_as(kind: str, app: reliq.Reliq, **options: Any) -> contextlib.AbstractContextManager[Worker]:
    """A worker for handlers of this kind."""
    return working(app, threads=4 if kind == "threads" else 1, **options)


def settled(app: reliq.Reliq, queue: str = "q") -> bool:
    """Whether no message of the queue is still to be handled."""
    stats = app.queue(queue).stats()
    return stats.ready == stats.processing == stats.delayed == 0
