"""Receive messages one by one: each stays invisible for a time of its own, and is deleted by its receipt."""

import time
from collections.abc import Sequence
from functools import cached_property

from reliq.aio.unbroken import Lock, acquired, brought
from reliq.contract import values
from reliq.contract.values import Duration
from reliq.features.receipts.model import Received, Wanted
from reliq.features.receipts.steps import ReceiptSteps, check_wanted, checked_visibility
from reliq.protocol.queue import QueueSteps
from reliq.transport.aiostore import AioStore

_LOOK = 0.25  #: seconds of waiting after which messages are looked for whose time in flight is over
_ENOUGH = 0.001  #: seconds that are too short to wait


class Receiver:
    """Receives for all callers of a queue. One of those who wait asks Redis; the others wait for their turn."""

    def __init__(self, store: AioStore, steps: ReceiptSteps) -> None:
        self._store = store
        self._steps = steps
        self._turn = Lock()
        self._waiters = 0
        self._connection = store.connection("reliq-receive")

    async def receive(self, wanted: Wanted, wait: float) -> list[Received]:
        """Return messages, or none after `wait` seconds."""
        until = time.monotonic() + wait
        received = await self._store.run(self._steps.receive(wanted))
        if received or until - time.monotonic() <= _ENOUGH:
            return received
        self._waiters += 1
        try:
            while not received and (left := until - time.monotonic()) > _ENOUGH:
                if await acquired(self._turn, left):
                    try:
                        received = await self._wait(wanted, until)
                    finally:
                        self._turn.release()
        finally:
            self._waiters -= 1
            await self._close()
        return received

    async def _close(self) -> None:
        """Close the connection when no caller waits any more."""
        if not self._waiters and await acquired(self._turn, _ENOUGH):
            try:
                if not self._waiters:
                    await self._connection.close()
            finally:
                self._turn.release()

    async def _wait(self, wanted: Wanted, until: float) -> list[Received]:
        received: list[Received] = []
        while not received and (left := until - time.monotonic()) > _ENOUGH:
            received = await self._store.run(self._steps.receive(wanted, min(left, _LOOK)), self._connection)
        return received

    async def give_back(self, received: Sequence[Received]) -> None:
        """Make messages visible again whose receiver is gone."""
        if received:
            await self._store.run(self._steps.change_visibility([(one.receipt, 0.0) for one in received]))


class ReceiveCalls:
    """What a queue has of messages in flight."""

    _store: AioStore
    _steps: QueueSteps

    @cached_property
    def _receipts(self) -> ReceiptSteps:
        return ReceiptSteps(self._steps.partitions, self._steps.pool)

    @cached_property
    def _receiver(self) -> Receiver:
        return Receiver(self._store, self._receipts)

    async def receive(
        self,
        limit: int = 1,
        visibility: Duration = values.LEASE,
        wait: Duration = 0,
        *,
        most_receives: int | None = None,
        runs: bool = False,
        attempt: str | None = None,
        most_in_flight: int | None = None,
    ) -> list[Received]:
        """Receive up to `limit` messages; none if nothing came within `wait` seconds.

            for received in await orders.receive(limit=10, visibility=30, wait=20):
                handle(received.message)
                await orders.delete_received([received.receipt])

        Each message is invisible to others for `visibility` seconds, at most 12 hours, and then ready again, without
        regard to whether its receiver lives; each receive counts as a delivery. `runs`: also those messages that wait
        for the key of a received one, in their order; the key is free again when none of them is in flight.
        `most_receives`: a message that was received so often becomes a dead letter (max_deliveries) instead.
        `attempt`: an id of this call: repeated within five minutes it returns the same messages and receipts, as long
        as all are in flight. Raises InvalidSetting, TooManyInFlight (`most_in_flight`), RedisUnavailable and
        OutcomeUnknown: what was received then is visible again after its time.
        """
        wanted = Wanted(limit, checked_visibility(visibility), most_receives, runs, attempt, most_in_flight)
        waits = values.seconds(wait, "wait")
        return await brought(self._receiver.receive(check_wanted(wanted), waits), self._receiver.give_back)

    async def change_visibility(self, changes: Sequence[tuple[str, Duration]], *, late: bool = False) -> list[str]:
        """Set how long each message, by its receipt, stays invisible from now on; 0 = it is ready again at once.

        Returns for each "changed", "expired" (its time was over), or "unknown" (not in flight). `late`: also by the
        receipt of an earlier receive of a message that is in flight.
        """
        checked = [(receipt, checked_visibility(seconds)) for receipt, seconds in changes]
        return await self._store.run(self._receipts.change_visibility(checked, late=late))

    async def delete_received(self, receipts: Sequence[str], *, late: bool = False) -> list[str]:
        """Delete received messages: they were handled.

        Returns for each receipt "deleted", "expired" (its time was over: nothing was deleted), or "unknown" (not in
        flight, maybe deleted before). `late`: one whose time was over is deleted nevertheless, unless another
        consumer has taken it since.
        """
        return await self._store.run(self._receipts.delete(receipts, late=late))

    async def return_due(self) -> int:
        """Make messages ready again whose time is over, as monitors and receives do; return how many."""
        return await self._store.run(self._receipts.return_due())

    async def purge_received(self) -> int:
        """Delete all messages in flight; return how many."""
        return await self._store.run(self._receipts.purge())

    async def forget_deduplication(self) -> None:
        """Forget all deduplication keys of the queue: a message with one that was used before is accepted."""
        await self._store.run(self._receipts.forget_deduplication())
