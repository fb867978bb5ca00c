"""The dead letters of a queue; see reliq.client.dead_letters."""

from typing import Any

from reliq.model.dead_letter import DeadLetter
from reliq.model.keys import QueueKeys
from reliq.protocol.dead_letters import DeadLetterSteps, Filter, Page, Redriven, checked_redrive
from reliq.protocol.progress import Progress, unwatched
from reliq.transport.aiostore import AioStore


class DeadLetters:
    """The dead letters of one queue; see reliq.DeadLetters."""

    def __init__(self, store: AioStore, keys: QueueKeys) -> None:
        self._store = store
        self._steps = DeadLetterSteps(keys)

    async def list(self, *, limit: int = 50, after: str | None = None, **filters: Any) -> Page:
        return await self._store.run(self._steps.page(Filter.of(**filters), limit, after))

    async def get(self, id: str) -> DeadLetter | None:
        return await self._store.run(self._steps.get(id))

    async def redrive(
        self,
        *,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        keep_failures: bool = False,
        stop_above: float | None = None,
        progress: Progress = unwatched,
        **filters: Any,
    ) -> Redriven:
        checked_redrive(rate, limit, stop_above)
        steps = self._steps.redrive(
            Filter.of(**filters), rate=rate, limit=limit, dry_run=dry_run, keep_failures=keep_failures,
            stop_above=stop_above, progress=progress,
        )  # fmt: skip
        return await self._store.run(steps)

    async def purge(self, *, all: bool = False, **filters: Any) -> int:
        return await self._store.run(self._steps.purge(Filter.of(**filters), all, "purged_dead"))
