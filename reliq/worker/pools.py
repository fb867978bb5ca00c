"""Pools for the handlers of a PooledLoop: threads for def, one event loop for async def."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reliq.runtime.failures import failures


class ThreadPool:
    """A fixed number of threads."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="reliq-handler")

    def submit(self, work: Callable[[], Any]) -> None:
        self._executor.submit(work)

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class EventLoop:
    """One event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="reliq-asyncio", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            _run_loop(self._loop.run_forever)
        while self._tasks:
            _run_loop(lambda: self._loop.run_until_complete(self._cancel_all()))
        self._loop.close()

    async def _cancel_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def submit(self, work: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(self._spawn, work)

    def _spawn(self, work: Callable[[], Any]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)  # the loop itself holds its tasks only weakly
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(RuntimeError):  # closed: the loop has just been ended by a task that exits
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)


def _run_loop(run: Callable[[], None]) -> None:
    """Run the loop; sys.exit() in a task ends this call of it, and is also raised where the task is awaited."""
    try:
        run()
    except BaseException as error:
        name = type(error).__qualname__
        text = "task_exited queue=%s error_class=%s: the event loop of async handlers goes on"
        failures.write(logging.WARNING, ("task_exited", "*", name), text, "*", name, error=error)
