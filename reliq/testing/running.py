"""Runs messages in this thread with the parts of a worker: its exchange with Redis, and its runner of handlers."""

import asyncio
import contextlib
import functools

from reliq.client.app import Reliq
from reliq.model.handlers import Handler
from reliq.model.keys import new_owner
from reliq.model.message import Message
from reliq.ops import Move
from reliq.worker.exchange import Exchange
from reliq.worker.runner import Runner
from reliq.worker.sharing import Sharing
from reliq.worker.threads import in_thread

_LEASE = 60.0  #: seconds


def run_next(app: Reliq, handler: Handler, home: str) -> bool:
    """Run the handler of the next message in a home of its queue, and settle it; return whether there was one."""
    owner = new_owner(connected=False)
    exchange = Exchange(app.store, home, owner, _LEASE, _no_hooks)
    runner, sharing = _Runner(app.store, handler, exchange, owner), Sharing(handler.queue, owner)
    exchange.reports.hold_others = lambda seconds: app.store.run(sharing.hold_others(home, seconds))
    exchange.steps.keep_results(handler.result or 0.0)
    exchange.steps.run_report = functools.partial(in_thread, app.store.run) if handler.is_async else app.store.run
    with contextlib.closing(exchange):
        try:
            messages = _claim(app, handler, exchange)
            for message in messages:
                _perform(runner, message)
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


def _perform(runner: "_Runner", message: Message) -> None:
    if runner.handler.is_async:
        asyncio.run(runner.perform_async(message))
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
