# Generated from reliq/features/receipts/aio.py by tools/generate_sync.py: do not edit
"""Receive messages one by one: each stays invisible for a time of its own, and is deleted by its receipt."""

import time
from collections.abc import Sequence
from functools import cached_property

from reliq import ops
from reliq.client.home_waiter import HomeWaiter
from reliq.client.unbroken import Lock, acquire, bring
from reliq.contract import values
from reliq.contract.values import Duration
from reliq.errors import OutcomeUnknown, RedisUnavailable, RedisUnsuitable
from reliq.features.receipts.checks import check_wanted, checked_changes, checked_receipts, checked_visibility
from reliq.features.receipts.model import Received, ReceiveRequest
from reliq.features.receipts.steps import ReceiptSteps
from reliq.protocol.queue import QueueSteps
from reliq.transport.connection import Connection
from reliq.transport.store import Store

_LOOK_AT_HOMES = 1.0  #: seconds of waiting after which several homes are asked for messages that are visible again
_UNWATCHED = 0.1  #: seconds between two looks at several homes, where the server does not tell
_ENOUGH = 0.001  #: seconds that are too short to wait


class Patience:
    """Whether the caller of a receive still waits: a cancellation ends that, and with the next look the receive."""

    lasts = True

    def end(self) -> None:
        self.lasts = False


class Receiver:
    """Receives for all callers of a queue. One of those who wait asks Redis; the others wait for their turn."""

    def __init__(self, store: Store, steps: ReceiptSteps) -> None:
        self._store = store
        self._steps = steps
        self._turn = Lock()
        self._waiters = 0
        self._connection = store.connection("reliq-receive")
        self._waiter: HomeWaiter | None = None  #: of several homes, once it has waited

    def receive(self, wanted: ReceiveRequest, wait: float, patience: "Patience") -> list[Received]:
        """Return messages, or none after `wait` seconds."""
        until = time.monotonic() + wait
        received = self._receive(wanted)
        if received or until - time.monotonic() <= _ENOUGH:
            return received
        self._waiters += 1
        try:
            while not received and patience.lasts and (left := until - time.monotonic()) > _ENOUGH:
                if acquire(self._turn, left):
                    try:
                        received = self._wait(wanted, until, patience)
                    finally:
                        self._turn.release()
        finally:
            self._waiters -= 1
            self._close()
        return received

    def _close(self) -> None:
        """Close the connection when no caller waits any more, and leave the watch."""
        if not self._waiters and acquire(self._turn, _ENOUGH):
            try:
                if not self._waiters:
                    self._waiter = None
                    self._connection.close()
            finally:
                self._turn.release()

    def _wait(self, wanted: ReceiveRequest, until: float, patience: "Patience") -> list[Received]:
        received: list[Received] = []
        in_vain = 0
        while not received and patience.lasts and (left := until - time.monotonic()) > _ENOUGH:
            if awaited := self._steps.awaited:
                self._waiter = self._waiter or HomeWaiter(self._store)
                told = self._waiter.wait(awaited, min(left, _LOOK_AT_HOMES), _UNWATCHED, in_vain)
                in_vain = in_vain + 1 if told else 0
            received = self._receive(wanted, min(left, self._steps.look), self._connection)
        return received

    def _receive(
        self, wanted: ReceiveRequest, timeout: float = 0.0, connection: Connection | None = None
    ) -> list[Received]:
        """Receive once. While all of several homes are away, repeat that for as long as any call is repeated."""
        patient_until = time.monotonic() + self._store.timeout
        while True:
            try:
                return self._store.run(self._steps.receive(wanted, timeout), connection)
            except (RedisUnavailable, OutcomeUnknown) as error:
                is_over = time.monotonic() > patient_until
                if is_over or not self._steps.has_several_homes or isinstance(error, RedisUnsuitable):
                    raise
                self._store.run(ops.one(ops.Sleep(_UNWATCHED)))

    def give_back(self, received: Sequence[Received]) -> None:
        """Make messages visible again whose receiver is gone."""
        if received:
            self._store.run(self._steps.change_visibility([(one.receipt, 0.0) for one in received]))


class ReceiveCalls:
    """What a queue has of messages in flight."""

    _store: Store
    _steps: QueueSteps

    @cached_property
    def _receipts(self) -> ReceiptSteps:
        return ReceiptSteps(self._steps.homes, self._steps.pool)

    @cached_property
    def _receiver(self) -> Receiver:
        return Receiver(self._store, self._receipts)

    def receive(
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

        Each one is invisible for `visibility` seconds, at most 12 hours, and then ready again unless its receipt was
        given to `delete_received`. `runs`: also those that wait for its key, in order. One that was received more than
        `most_receives` times becomes a dead letter. The same `attempt` returns within five minutes the same messages.
        Raises InvalidSetting, TooManyInFlight (`most_in_flight`), RedisUnavailable and OutcomeUnknown.
        """
        runs = values.yes_or_no(runs, "runs")
        wanted = ReceiveRequest(limit, checked_visibility(visibility), most_receives, runs, attempt, most_in_flight)
        waits = values.seconds(wait, "wait")
        patience = Patience()
        receiving = self._receiver.receive(check_wanted(wanted), waits, patience)
        return bring(receiving, self._receiver.give_back, patience.end)

    def change_visibility(self, changes: Sequence[tuple[str, Duration]], *, late: bool = False) -> list[str]:
        """Set how long messages stay in flight, from now on; return "changed", "expired" or "unknown" for each."""
        late = values.yes_or_no(late, "late")
        return self._store.run(self._receipts.change_visibility(checked_changes(changes), late=late))

    def delete_received(self, receipts: Sequence[str], *, late: bool = False) -> list[str]:
        """Delete received messages; return "deleted", "expired" or "unknown" for each; `late`: expired ones too."""
        late = values.yes_or_no(late, "late")
        return self._store.run(self._receipts.delete(checked_receipts(receipts), late=late))

    def return_due(self) -> int:
        """Make messages ready again whose time is over, as monitors and receives do; return how many."""
        return self._store.run(self._receipts.return_due())

    def purge_received(self) -> int:
        """Delete all messages in flight; return how many."""
        return self._store.run(self._receipts.purge())

    def change_delay(self, delay: Duration) -> int:
        """Let delayed messages be due `delay` after they were sent; return how many. Those that retry or sleep stay.

        Those of a key keep their order if all are sent with this delay from now on. Raises InvalidSetting.
        """
        return self._store.run(self._receipts.change_delay(values.seconds(delay, "delay")))

    def forget_deduplication(self) -> None:
        """Forget all deduplication keys of the queue: a message with one that was used before is accepted."""
        self._store.run(self._receipts.forget_deduplication())
