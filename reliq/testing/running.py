"""Runs messages in this thread with the parts of a worker: its exchange with Redis, and its runner of handlers."""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from reliq.client.app import Reliq
from reliq.model.handlers import Handler
from reliq.model.keys import new_owner
from reliq.model.message import Message
from reliq.ops import Move
from reliq.worker.assignment import Assignment
from reliq.worker.exchange import Exchange
from reliq.worker.runner import Runner
from reliq.worker.threads import in_thread

T = TypeVar("T")

_LEASE = 60.0  #: seconds
_PATIENCE = 1.0  #: seconds for which tasks that handlers have left behind may take to end


class AsyncHandlers:
    """The event loop in which async handlers run, one message after another, as all of a worker share one."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None  #: None: no handler has run since the latest `close`
        self._lasting: set[asyncio.Task[Any]] = set()  #: tasks that were waited for in vain

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it to its end, in a copy of this context. Tasks that others have begun go on meanwhile."""
        self._runner = self._runner or asyncio.Runner(loop_factory=asyncio.new_event_loop)
        loop = self._runner.get_loop()
        return loop.run_until_complete(loop.create_task(coroutine, context=contextvars.copy_context()))

    def go_on(self) -> bool:
        """Let tasks that handlers have left behind end, for a second at most; return whether any has."""
        left = asyncio.all_tasks(self._runner.get_loop()) - self._lasting if self._runner else None
        if not left:
            return False
        done, lasting = self.run(asyncio.wait(left, timeout=_PATIENCE))
        self._lasting |= lasting
        return bool(done)

    def close(self) -> None:
        """Cancel the tasks that are left, and close the loop; also where another loop runs in this thread."""
        if self._runner is not None:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._runner.close).result()
            self._runner = None
            self._lasting.clear()


def run_next(app: Reliq, handler: Handler, home: str, loop: AsyncHandlers) -> bool:
    """Run the handler of the next message in a home of its queue, and settle it; return whether there was one."""
    owner = new_owner(connected=False)
    exchange = Exchange(app.store, home, owner, _LEASE, _no_hooks)
    runner, assignment = _Runner(app.store, handler, exchange, owner), Assignment(handler.queue, owner)
    exchange.reports.hold_others = lambda seconds: app.store.run(assignment.hold_others(home, seconds))
    exchange.steps.keep_results(handler.result or 0.0)
    exchange.steps.run_report = functools.partial(in_thread, app.store.run) if handler.is_async else app.store.run
    with contextlib.closing(exchange):
        try:
            messages = _claim(app, handler, exchange)
            for message in messages:
                _perform(runner, message, loop)
        finally:
            exchange.settle_and_claim(0)
            exchange.leave(lambda: False)
    return bool(messages)


def _claim(app: Reliq, handler: Handler, exchange: Exchange) -> list[Message]:
    """Claim a message. Those that have expired, or were cancelled, are passed over."""
    queue = app.queue(handler.queue)
    messages: list[Message] = []
    ready = queue.stats().ready
    while ready and not (messages := exchange.settle_and_claim(1, waits=False)):
        before, ready = ready, queue.stats().ready
        if ready == before:  # paused, or limited
            break
    return messages


def _perform(runner: "_Runner", message: Message, loop: AsyncHandlers) -> None:
    if runner.handler.is_async:
        loop.run(runner.perform_async(message))
    else:
        runner.perform(message)
    if runner.interrupt is not None:
        raise runner.interrupt


class _Runner(Runner):
    """A runner in the thread that gets Ctrl-C: that is an outcome of the message too, and then ends the test."""

    interrupt: KeyboardInterrupt | None = None

    def _after_error(self, message: Message, error: BaseException) -> Move | None:
        if isinstance(error, KeyboardInterrupt):
            self.interrupt = error
        return super()._after_error(message, error)


def _no_hooks(move: Move) -> None:
    """Nothing but handlers runs here: no `@app.on_dead`."""
