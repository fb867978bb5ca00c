"""Background tasks. None ends unnoticed: a failure is logged, `/healthz` and `/readyz` are red until
the task runs again, and it is started again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger("reliq.api")

_PAUSES = (0.0, 0.1, 0.5, 1.0, 5.0)  #: seconds before a task starts again; the last one repeats

Work = Callable[[], Awaitable[None]]
T = TypeVar("T")


class Background:
    """The background tasks of one process. A context: leaving it ends them."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], tuple[str, Work]] = {}
        self._fetches: set[asyncio.Task[Any]] = set()
        self._down: dict[object, str] = {}
        self._closing = False

    @property
    def down(self) -> list[str]:
        """The kinds of tasks that have failed and do not run again yet, without the names of queues."""
        return sorted(set(self._down.values()))

    def mark(self, name: str, failed: bool) -> None:
        """Note that something other than a task fails unexpectedly, or works again."""
        if failed:
            self._down[name] = name
        else:
            self._down.pop(name, None)

    def start(self, name: str, work: Work) -> None:
        """Run `work` until it returns; call it again after an exception or a cancellation from outside."""
        task = asyncio.create_task(self._repeat(name, work), name=f"reliq-api-{name}")
        self._tasks[task] = name, work
        task.add_done_callback(self._ended)

    def fetch(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task that reads something for all requests that wait for it; leaving the context ends it."""
        task = asyncio.create_task(work)
        self._fetches.add(task)
        task.add_done_callback(self._fetches.discard)
        return task

    async def _repeat(self, name: str, work: Work) -> None:
        failures, key = 0, object()
        try:
            while True:
                self._down.pop(key, None)
                try:
                    return await work()
                except Exception:
                    pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                    log.exception("the task %r failed; it starts again in %g s", name, pause)
                    self._down[key] = name
                    failures += 1
                    await asyncio.sleep(pause)
        finally:
            self._down.pop(key, None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        name, work = self._tasks.pop(task)
        if task.cancelled() and not self._closing:
            log.error("the task %r was cancelled; it starts again", name)
            self.start(name, work)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._closing = True
        tasks = [*self._tasks, *self._fetches]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
