"""An application without a Redis server, and handlers that run synchronously."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from reliq import ops
from reliq.client.app import Reliq
from reliq.errors import InvalidSetting
from reliq.extras import missing_extra
from reliq.features.batches.steps import end_all
from reliq.features.flows.telling import tell_all
from reliq.model.handlers import Handler
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.runtime.barred import IN_MEMORY
from reliq.testing.due import bring_due
from reliq.testing.running import AsyncHandlers, run_next
from reliq.transport.store import Store
from reliq.worker.calling import called

#: What features do as a monitor would, when no message is ready; each returns whether it did something.
TURNS: tuple[Callable[[], Steps[bool]], ...] = (end_all, tell_all)

A = TypeVar("A", bound=Reliq)


def check_sync(app: object) -> None:
    """Raise InvalidSetting unless this is a `reliq.Reliq`: handlers of others cannot run here."""
    if not isinstance(app, Reliq):
        kind = type(app)
        raise InvalidSetting(
            f"reliq.testing was given a {kind.__module__.removesuffix('.app')}.{kind.__qualname__}: give it a "
            "reliq.Reliq, whose handlers may be async def, too"
        )


def fake(app: A) -> A:
    """Connect the application to a new, empty Redis in the memory of this process; return the application."""
    check_sync(app)
    try:
        import fakeredis
    except ImportError as error:
        raise missing_extra("reliq.testing.fake", "testing", error) from None
    server = fakeredis.FakeServer()
    pool = fakeredis.FakeRedis(server=server, protocol=2, max_connections=2**31).connection_pool
    app._redirect(IN_MEMORY, pool.make_connection)  # noqa: SLF001
    return app


def work_off(app: Reliq, limit: int = 1000) -> int:
    """Run the handlers of all ready messages now, at most `limit`; return how many ran.

    Outcomes are settled as by a worker: acked, retried, dead. Delayed messages and retries stay delayed until they are
    due by the clock of the server. What follows a batch is sent when all of its messages have ended. Async handlers
    share an event loop, which ends with this call; that of a bench ends with the bench. Raises InvalidSetting in an
    event loop, if a handler is async.
    """
    check_sync(app)
    with contextlib.closing(AsyncHandlers()) as loop:
        return run_ready(app, limit, loop)


def run_ready(app: Reliq, limit: int, loop: AsyncHandlers) -> int:
    """Do so with this event loop for async handlers."""
    _check_loop(app)
    done, handlers = 0, [called(handler, app.handlers, app.store) for handler in app.handlers]
    while done < limit:
        before = done
        for handler in handlers:
            done += done < limit and _run_one(app, handler, loop)
        if done == before and not (loop.go_on() or _take_turns(app.store)):
            break
    return done


def _take_turns(store: Store) -> bool:
    """Do what a monitor would, but for ticks of schedules; return whether there was something to do."""
    return any(store.run(turn()) for turn in TURNS) or bring_due(store, ticks=False) > 0


def _check_loop(app: Reliq) -> None:
    """Refuse to run async handlers in a running event loop: each would fail, as if its own code had."""
    asynchronous = [handler.queue for handler in app.handlers if handler.is_async]
    if asynchronous and asyncio._get_running_loop() is not None:  # noqa: SLF001
        raise InvalidSetting(
            f"the handler of queue {asynchronous[0]!r} is async and needs an event loop of its own: in an async test "
            "write await asyncio.to_thread(bench.work_off)"
        )


def _run_one(app: Reliq, handler: Handler, loop: AsyncHandlers) -> bool:
    """Run the handler of the next message that is not expired; return whether there was one."""
    layout = app.store.call(ops.layout(QueueKeys(handler.queue)))
    return any(run_next(app, handler, home, loop) for home in layout.every(handler.queue))
