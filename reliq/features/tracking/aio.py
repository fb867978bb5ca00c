"""Find and cancel messages."""

from collections.abc import Mapping
from functools import cached_property

from reliq.contract.values import check_id
from reliq.errors import RedisUnavailable
from reliq.features.tracking.hits import Hits
from reliq.features.tracking.model import Cancellation, Found
from reliq.features.tracking.steps import Tracking
from reliq.model.found import CancelledMany
from reliq.protocol.application import Application
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.queue import QueueSteps
from reliq.transport.aiostore import AioStore


class TrackingCalls:
    """What a queue has of single messages."""

    _store: AioStore
    _steps: QueueSteps

    @cached_property
    def _tracking(self) -> Tracking:
        return Tracking(self._steps.homes)

    async def find(self, id: str) -> Found | None:
        """Return where the message with this id is, without its body; None if it is not in the queue.

        Redis searches ready messages 250 at a time: about a second for a million. Raises InvalidName.
        """
        return await self._store.run(self._tracking.find(id))

    async def search(self, text: str, *, place: str | None = None, limit: int = 50, most: int = 200_000) -> Hits:
        """Return the messages whose id, headers, keys, errors or body contain a text; upper and lower case differ.

        `place`: "ready", "delayed" or "dead"; None: all. At most `limit` messages are found and `most` looked at, the
        newest first; `looked`, `total` and `unread` (bodies over 256 KiB) of the answer say so. Raises InvalidSetting.
        """
        return await self._store.run(self._tracking.search(text, place, limit, most))

    async def cancel(self, id: str) -> Cancellation:
        """Cancel a message, wherever it is.

        `cancelled` (the only true answer): it was ready, delayed, prepared or waiting, and is removed. `told`: its
        consumer is told with its next heartbeat; an async handler is cancelled, others see `message.cancelled`.
        `done`: a dead letter. `unknown`: any other id. Of several messages with this id it cancels one, or one of each
        partition. Raises InvalidName, and OutcomeUnknown if it may have removed the message.
        """
        return await self._store.run(self._tracking.cancel(id))

    async def cancel_many(
        self,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Progress = unwatched,
    ) -> CancelledMany:
        """Cancel the messages with a key (an ordering or a limit key), or with all of these headers.

        `dry_run`: only count them. `progress` is called with the number so far. Messages that are sent or put back
        while it runs may be missed. Raises InvalidSetting and InvalidMessage.
        """
        return await self._store.run(self._tracking.cancel_many(key, headers, dry_run, progress))


class FindCalls(Application):
    """What an application has of single messages."""

    store: AioStore
    _known: list[str]

    async def find(self, id: str) -> Found | None:
        """Return where the message with this id is, in whichever queue; None if it is in none.

        It searches one queue after the other; `Queue.find` is faster. Raises InvalidName and RedisUnavailable.
        """
        check_id(id)
        self._known = await self.store.run(every_queue(self._known))
        away: RedisUnavailable | None = None
        for name in sorted(self._known):
            try:
                found = await self.store.run(Tracking(self._steps_of(name).homes).find(id))
            except RedisUnavailable as error:  # it may be in a queue that can be read
                away = away or error
                continue
            if found is not None:
                return found
        if away is not None:
            raise away
        return None
