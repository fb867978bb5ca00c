"""Calls that are not broken off half way. Written by hand, as `reliq.client.unbroken`: only tasks can be cancelled."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from reliq.errors import ReliqError

T = TypeVar("T")

Lock = asyncio.Lock

_tasks: set[asyncio.Future[Any]] = set()  # the event loop itself holds its tasks only weakly


def interrupts(lock: asyncio.Lock) -> bool:
    """Whether the caller has interrupted the very call that holds the lock: no task does that."""
    return False


async def acquire(lock: Lock, seconds: float) -> bool:
    """Acquire the lock unless that takes longer."""
    try:
        return await asyncio.wait_for(lock.acquire(), seconds)
    except TimeoutError:
        return False


async def finish(work: "asyncio.Future[T] | Coroutine[Any, Any, T]") -> T:
    """Wait for the end of this work; a cancellation ends the waiting, and not the work."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            _tasks.add(task)
            task.add_done_callback(_tasks.discard)


async def bring(
    claim: Coroutine[Any, Any, T],
    give_back: Callable[[T], Awaitable[None]],
    on_cancel: Callable[[], object] = lambda: None,
    broken_off: Callable[[], Awaitable[T]] | None = None,
) -> T:
    """Return what a claim brings. Where the caller is cancelled, however often, `give_back` gets it instead.

    `on_cancel` is called then; if it returns True, the claim is broken off, and `broken_off` returns what that has
    brought.
    """
    task = asyncio.ensure_future(claim)
    try:
        return await finish(task)
    except asyncio.CancelledError:
        if on_cancel() is True:
            task.cancel()
        await finish(_late(task, give_back, broken_off))
        raise


async def _late(
    claim: "asyncio.Future[T]",
    give_back: Callable[[T], Awaitable[None]],
    broken_off: Callable[[], Awaitable[T]] | None,
) -> None:
    await asyncio.wait([claim])
    with suppress(ReliqError):
        if claim.cancelled() and broken_off is not None:
            await give_back(await broken_off())
        else:
            await give_back(await claim)
