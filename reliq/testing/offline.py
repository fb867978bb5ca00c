"""An application without a Redis server, and handlers that run synchronously."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from reliq import ops
from reliq.client.app import Reliq
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra
from reliq.features.batches.steps import end_all
from reliq.features.flows.telling import tell_all
from reliq.model.handlers import Handler
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.message import Message
from reliq.model.policy import RunOver
from reliq.model.result import Answer
from reliq.ops import Move, Steps
from reliq.protocol.consumer import ConsumerSteps
from reliq.worker.calling import called
from reliq.worker.outcome import after_error, after_return

#: What features do as a monitor would, when no message is ready; each returns whether it did something.
TURNS: tuple[Callable[[], Steps[bool]], ...] = (end_all, tell_all)

A = TypeVar("A", bound=Reliq)


def fake(app: A) -> A:
    """Connect the application to a new, empty Redis in the memory of this process; return the application."""
    try:
        import fakeredis
    except ImportError as error:
        raise missing_extra("reliq.testing.fake", "testing", error) from None
    server = fakeredis.FakeServer()
    pool = fakeredis.FakeRedis(server=server, protocol=2, max_connections=2**31).connection_pool
    app.store.redirect(app.url, connect=pool.make_connection)
    return app


def work_off(app: Reliq, limit: int = 1000) -> int:
    """Run the handlers of all ready messages now, at most `limit`; return how many ran.

    Outcomes are settled as by a worker: acked, retried, dead. Delayed messages and retries stay delayed. What follows a
    batch is sent when all of its messages have ended. Raises InvalidSetting in an event loop, if a handler is async.
    """
    _check_loop(app)
    done, handlers = 0, [called(handler, app.handlers, app.store) for handler in app.handlers]
    while done < limit:
        before = done
        for handler in handlers:
            done += done < limit and _run_one(app, handler)
        if done == before and not any(app.store.run(turn()) for turn in TURNS):
            break
    return done


def _check_loop(app: Reliq) -> None:
    """Refuse to run async handlers in a running event loop: each would fail, as if its own code had."""
    asynchronous = [handler.queue for handler in app.handlers if handler.is_async]
    if asynchronous and asyncio._get_running_loop() is not None:  # noqa: SLF001
        raise InvalidSetting(
            f"the handler of queue {asynchronous[0]!r} is async and needs an event loop of its own: in an async test "
            "write await asyncio.to_thread(bench.work_off)"
        )


def _run_one(app: Reliq, handler: Handler) -> bool:
    """Run the handler of the next message that is not expired; return whether there was one."""
    layout = app.store.call(ops.layout(QueueKeys(handler.queue)))
    return any(_run_one_of(app, handler, QueueKeys(name)) for name in layout.every(handler.queue))


def _run_one_of(app: Reliq, handler: Handler, keys: QueueKeys) -> bool:
    """Do so for one home of the queue."""
    consumer = ConsumerSteps(keys, new_owner(connected=False), lease=60)
    consumer.keep_results(handler.result or 0.0)
    consumer.run_report = _awaited(app) if handler.is_async else app.store.run
    queue = app.queue(handler.queue)
    messages, ready = [], queue.stats().ready
    while ready and not (messages := app.store.run(consumer.claim(1))):
        before, ready = ready, queue.stats().ready
        if ready == before:  # paused, or limited
            break
    for message in messages:
        if message.was_started:
            app.store.run(consumer.lives.begin(message))
        move = _outcome(handler, message, consumer)
        if message.lost:  # it sleeps or waits
            continue
        app.store.run(consumer.settle([] if move else [message.element], [move] if move else []))
    app.store.run(consumer.leave())
    return bool(messages)


def _awaited(app: Reliq) -> Callable[[Steps[Any]], Awaitable[Any]]:
    async def run(steps: Steps[Any]) -> Any:
        return app.store.run(steps)

    return run


def _outcome(handler: Handler, message: Message, consumer: ConsumerSteps) -> Move | None:
    try:
        result = handler.function(message)
        if handler.is_async:
            result = asyncio.run(result)
            consumer.lives.check_awaited(message)
        if isinstance(result, Answer):
            consumer.answer(message, result.stored)
            return None
        return after_return(message, result)
    except RunOver:
        return None
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001  what it raises is its outcome
        return after_error(handler, message, error, consumer.consumer)
