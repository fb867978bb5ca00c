"""Threads for what the worker does for async handlers: those of asyncio may be full of the handlers' own work."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from reliq import forks

T = TypeVar("T")

_AT_ONCE = 32


_threads = ThreadPoolExecutor(_AT_ONCE, "reliq-call")


def _begin_anew() -> None:
    """Forget the threads of the parent process: a child has none of them."""
    global _threads
    _threads = ThreadPoolExecutor(_AT_ONCE, "reliq-call")


forks.in_every_child(_begin_anew)


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in one of these threads, in the context of the task."""
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_threads, context.run, function, *arguments)
