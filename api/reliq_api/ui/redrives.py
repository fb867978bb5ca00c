"""Redrives that were started from the dashboard. Each runs as a task of this process; its page shows how far it is.

A redrive that ends half way, because it was stopped or the service ended, loses nothing: every letter is either dead
or back in its queue.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastapi import HTTPException, Request

from reliq.aio.queue import Queue
from reliq.errors import ReliqError
from reliq.protocol.dead_letters import Redriven
from reliq_api.http.problems import Problem, of_error
from reliq_api.ui.search import Search

log = logging.getLogger("reliq.api.ui")

RUNNING_LARGEST = 4
KEPT = 50  #: finished redrives that can still be viewed

Supervise = Callable[[Coroutine[Any, Any, Redriven]], Awaitable[Redriven]]
State = Literal["running", "done", "stopped", "failed"]


@dataclass(slots=True)
class Redrive:
    """One redrive, or the dry run of one."""

    id: str
    queue: str
    dry_run: bool
    search: Search
    options: Mapping[str, Any]
    total: int  #: the largest number of letters it can meet
    state: State = "running"
    matched: int = 0
    redriven: int = 0
    note: str = ""  #: why it ended early
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    def progress(self, matched: int) -> None:
        self.matched = matched

    def after(self, task: asyncio.Task[None]) -> None:
        if self.state == "running":  # cancelled, perhaps before its first step
            self.state = "stopped"
            self.ended = time.monotonic()

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Redrives:
    """The latest redrives of this process."""

    def __init__(self) -> None:
        self._all: dict[str, Redrive] = {}

    def get(self, queue: str, identity: str) -> Redrive | None:
        found = self._all.get(identity)
        return found if found is not None and found.queue == queue else None

    def running(self, queue: str) -> list[Redrive]:
        return [one for one in self._all.values() if one.queue == queue and one.state == "running"]

    def start(
        self, queue: Queue, total: int, search: Search, options: Mapping[str, Any], supervise: Supervise
    ) -> Redrive:
        """Start a redrive; raises HTTPException if too many are running.

        `supervise`: returns the result of the redrive, and raises Problem when its sender may not go on.
        """
        if sum(one.state == "running" for one in self._all.values()) >= RUNNING_LARGEST:
            raise HTTPException(429, f"{RUNNING_LARGEST} redrives are running: wait for one to end, or stop one.")
        redrive = Redrive(secrets.token_hex(8), queue.name, bool(options.get("dry_run")), search, options, total)
        self._all[redrive.id] = redrive
        redrive.task = asyncio.create_task(_run(redrive, queue, supervise), name=f"reliq-ui-redrive-{redrive.id}")
        redrive.task.add_done_callback(redrive.after)
        self._forget()
        return redrive

    def _forget(self) -> None:
        over = [one.id for one in self._all.values() if one.state != "running"]
        for identity in over[: max(0, len(over) - KEPT)]:
            del self._all[identity]

    async def close(self) -> None:
        """Stop running redrives and wait for their end."""
        tasks = [one.task for one in self._all.values() if one.task is not None and not one.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(redrive: Redrive, queue: Queue, supervise: Supervise) -> None:
    filters = redrive.search.filters()
    try:
        result = await supervise(queue.dead.redrive(**filters, **redrive.options, progress=redrive.progress))
        redrive.matched, redrive.redriven, redrive.note = result.matched, result.redriven, result.stopped
        redrive.state = "done"
    except Problem as error:
        redrive.state, redrive.note = "stopped", error.detail
    except ReliqError as error:
        redrive.state, redrive.note = "failed", of_error(error).detail
    except Exception:
        log.exception("a redrive of queue %s failed", queue.name)
        redrive.state, redrive.note = "failed", "The redrive failed; the log of the service says more."
    redrive.ended = time.monotonic()


def redrives_of(request: Request) -> Redrives:
    redrives: Redrives = request.app.state.ui_redrives
    return redrives
