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
from reliq.protocol.progress import Progress, unwatched
from reliq.protocol.queue import QueueSteps
from reliq.protocol.seen import every_queue
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

        Delayed and dead messages are found at once. Ready ones are looked for, 250 with each command, so that Redis
        serves others in between: about a second for a million of them. Raises InvalidName.
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

        One that is ready, delayed, prepared or waits for its key is removed, and never runs: `cancelled`, the only true
        answer as a condition. The consumer of one in processing learns it with its next heartbeat: an async handler is
        cancelled, others see `message.cancelled`: `told`. A dead letter: `done`; any other id: `unknown`.
        A ready message is looked for as by `find`. Raises InvalidName, and OutcomeUnknown if an answer of Redis was
        lost and the message is not in the queue any more: this call may have removed it.
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

        It looks through the queues one after the other, by name; where the queue is known, `Queue.find` is faster.
        Raises InvalidName, and RedisUnavailable if it is in no queue that can be read.
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
