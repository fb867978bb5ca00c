"""The dead letters of a queue: list, redrive, purge."""

from typing import Unpack

from reliq.model.dead_letter import DeadLetter
from reliq.model.keywords import DeadLetterFilters
from reliq.protocol.dead_letters import DeadLetterQueue, Filter, Page, Redriven, RedriveOptions
from reliq.protocol.homes import QueueHomes
from reliq.protocol.progress import Progress, unwatched
from reliq.transport.aiostore import AioStore


class DeadLetters:
    """The dead letters of one queue: `queue.dead`."""

    def __init__(self, store: AioStore, homes: QueueHomes) -> None:
        self._store = store
        self._steps = DeadLetterQueue(homes)

    async def list(
        self, *, limit: int = 50, after: str | None = None, bodies: bool = True, **filters: Unpack[DeadLetterFilters]
    ) -> Page:
        """Return dead letters, latest first; `after` is the `next` of the page before.

        A page has up to `limit` letters, and up to 64 MiB of bodies. `bodies=False`: large bodies stay in Redis;
        `size` is known of each, and `get` reads one.
        Filters, here and below, are those of DeadLetterFilters: `ids`, `reason`, `error_class`, `error_text`,
        `older_than`, `newer_than`, `headers`.
        """
        return await self._store.run(self._steps.page(Filter.of(filters), limit, after, bodies))

    async def get(self, id: str) -> DeadLetter | None:
        """Return the letter with this id, or None."""
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
        **filters: Unpack[DeadLetterFilters],
    ) -> Redriven:
        """Put letters back into the queue in the order of their deaths: all, or those that match the filters.

        `rate`: messages a second. `dry_run`: only count. `keep_failures`: do not reset the count of failures.
        `stop_above`: with a rate, stop when more than this share of the redriven letters has died again.
        You may interrupt it anywhere: each letter is either dead or back.
        """
        options = RedriveOptions(rate, limit, dry_run, keep_failures, stop_above, progress)
        return await self._store.run(self._steps.redrive(Filter.of(filters), options))

    async def purge(self, *, all: bool = False, **filters: Unpack[DeadLetterFilters]) -> int:
        """Delete the letters that match the filters, or all with all=True; return how many."""
        return await self._store.run(self._steps.purge(Filter.of(filters), all))
