"""The delayed messages of a queue: list them, run them now."""

from collections.abc import Mapping

from reliq.errors import InvalidSetting
from reliq.protocol.delayed import DelayedPage, Selection, delayed_of_queue, run_by_id, run_selected
from reliq.protocol.homes import QueueHomes
from reliq.protocol.progress import Progress, unwatched
from reliq.transport.aiostore import AioStore


class Delayed:
    """The delayed messages of one queue: `queue.delayed`."""

    def __init__(self, store: AioStore, homes: QueueHomes) -> None:
        self._store = store
        self._homes = homes

    async def list(
        self,
        *,
        limit: int = 50,
        after: str | None = None,
        failed: bool = False,
        error_class: str | None = None,
        headers: Mapping[str, str] | None = None,
        bodies: bool = True,
    ) -> DelayedPage:
        """Return delayed messages, due soonest first; `after` is the `next` of the page before.

        `failed`: only messages that wait for a retry; `last_error` says why. `error_class`: of the last error, with or
        without its module. `headers`: all of these must be equal. `bodies`: as in `queue.dead.list`.
        """
        wanted = Selection(failed, error_class, headers)
        return await self._store.run(delayed_of_queue(self._homes, limit, after, wanted, bodies))

    async def run(
        self,
        *ids: str,
        failed: bool = False,
        error_class: str | None = None,
        headers: Mapping[str, str] | None = None,
        all: bool = False,
        dry_run: bool = False,
        progress: Progress = unwatched,
    ) -> int:
        """Make delayed messages due now, by their ids, by the filters of `list`, or all; return how many.

        A monitor makes them ready at once. Their failures still count. `dry_run`: only count, for filters.
        `progress` is called with the number so far. Raises InvalidName, and InvalidSetting without ids and filter.
        """
        wanted = Selection(failed, error_class, headers)
        if not ids:
            return await self._store.run(run_selected(self._homes, wanted, all, dry_run, progress))
        if all or dry_run or not wanted.empty:
            raise InvalidSetting("run takes ids, or filters: not both")
        return await self._store.run(run_by_id(self._homes, ids))
