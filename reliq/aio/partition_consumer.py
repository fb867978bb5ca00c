"""Claiming and settling by hand, from one partition of a queue."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from reliq import ops
from reliq.contract import values
from reliq.contract.values import Duration, seconds, whole
from reliq.errors import InvalidSetting, OutcomeUnknown, ReliqError
from reliq.model.keys import QueueKeys, connection_name, new_owner
from reliq.model.message import Message
from reliq.ops import Move, Settled
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.outcomes import buried, failure_now, released, retried
from reliq.protocol.oversized import takeable
from reliq.protocol.settlement import advise_about, checked_lease, lease_lost, settleable, settled_before
from reliq.runtime.moment import Moment
from reliq.transport.aiostore import AioStore

T = TypeVar("T")


class PartitionConsumer:
    """Claims and settles by hand, from one partition of a queue; see reliq.Consumer.

    One task claims at a time; others may settle. A task renews the lease.
    """

    def __init__(self, store: AioStore, keys: QueueKeys, lease: Duration = values.LEASE) -> None:
        self.lease = checked_lease(lease)
        self._store = store
        self._owner = new_owner()
        self._steps = ConsumerSteps(keys, self._owner, self.lease)
        self._connection = store.connection(connection_name(self._owner))
        self._connection.on_connect = self._steps.connected
        self._steps.run_report = self._report
        self._beats = store.connection(connection_name(self._owner))  # named as well: a monitor must see that it lives
        self._beating: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._lock = asyncio.Lock()
        self._beat_lock = asyncio.Lock()

    @property
    def keys(self) -> QueueKeys:
        return self._steps.keys

    def holds(self, message: Message) -> bool:
        """Whether the message was claimed here."""
        return isinstance(message, Message) and message.holder is self._steps

    @property
    def steps(self) -> ConsumerSteps:
        return self._steps

    @property
    def closed(self) -> bool:
        """Whether its context has ended."""
        return self._closed

    @property
    def idle(self) -> bool:
        """Whether it holds no messages."""
        return not self._steps.held

    @property
    def owes(self) -> bool:
        """Whether it may hold messages that its caller has not received: the next claim finds out."""
        return bool(self._steps.arrivals.messages) or self._steps.to_be_verified

    @property
    def id(self) -> str:
        return self._steps.consumer

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._steps.is_parents:  # a forked child leaves its parent what that holds
            return
        self._closed = True
        try:
            async with self._lock:
                await self._store.run(self._steps.leave(), self._connection)
        finally:
            if self._beating is not None:
                self._beating.cancel()
            await self._connection.close()
            await self._beats.close()

    async def claim(self, limit: int = 1, wait: Duration = 0, patience: float | None = None) -> list[Message]:
        if self._closed:
            raise InvalidSetting("this consumer has ended with its `async with` block: make a new one")
        whole(limit, "limit", 1, values.MAX_BATCH)
        until = time.monotonic() + seconds(wait, "wait")
        messages = await self._run(lambda: self._steps.claim(limit), patience)
        while not messages and (left := until - time.monotonic()) > 0.001:
            timeout = min(left, values.BLOCK, self.lease / values.HEARTBEATS_PER_LEASE)
            messages = await self._run(lambda timeout=timeout: self._steps.wait(limit, timeout), patience)  # type: ignore[misc]
        try:
            return await self._begun(messages)
        except ReliqError:  # what was claimed must not be forgotten: it comes with the next claim
            self._steps.not_received(messages)
            raise
        except asyncio.CancelledError:
            await self.take_back(messages)
            raise

    async def _begun(self, messages: list[Message]) -> list[Message]:
        """Return those of the claimed messages that are still held, with what an earlier consumer has reported."""
        if messages and self._steps.trusted_until.passed():  # suspended on the way: they may be others' by now
            await self.heartbeat()
        held = [message for message in messages if not message.lost]
        for message in held:
            if message.was_started:
                await self._report(self._steps.lives.begin(message))
        return held

    async def _report(self, steps: ops.Steps[None]) -> None:
        async with self._beat_lock:
            await self._store.run(steps, self._beats)

    async def take_back(self, messages: Sequence[Message]) -> None:
        """Release messages of the latest claim, whose caller was cancelled."""
        await self._finished(self._release(messages))

    async def _run(self, steps: Callable[[], ops.Steps[list[Message]]], patience: float | None) -> list[Message]:
        """Run a claim in a task of its own: cancelled half way, it would leave messages that no one knows.

        Where the caller is cancelled, however often, the claim goes on, and releases what it brings.
        """
        task = asyncio.ensure_future(self._locked(steps, patience))
        try:
            return await self._finished(task)
        except asyncio.CancelledError:
            await self._finished(self._release_late(task))
            raise

    async def _finished(self, work: "asyncio.Future[T] | Coroutine[Any, Any, T]") -> T:
        """Wait for the end of a task; a cancellation ends the waiting, and not the task."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the event loop itself holds its tasks only weakly
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _release_late(self, claim: "asyncio.Future[list[Message]]") -> None:
        """Give back what a claim brings whose caller is gone."""
        with contextlib.suppress(ReliqError):
            await self._release(await claim)

    async def _release(self, messages: Sequence[Message]) -> None:
        """Give messages back; those that cannot be given back now come with the next claim."""
        try:
            await self.release(*messages)
        except ReliqError:
            self._steps.not_received(messages)

    async def _locked(self, steps: Callable[[], ops.Steps[list[Message]]], patience: float | None) -> list[Message]:
        async with self._lock:
            try:
                return await self._store.run(steps(), self._connection, patience)
            except OutcomeUnknown:  # the second try reads back what the first one moved
                return await self._store.run(steps(), self._connection, patience)

    async def ack(self, *messages: Message) -> None:
        await self._settle(messages)

    async def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        failure = failure_now(self.id, "Retry", error)
        await self._settle((message,), lambda one: retried(one, failure, seconds(delay, "delay")))

    async def dead(self, message: Message, reason: str) -> None:
        failure = failure_now(self.id, "Dead", str(reason))
        await self._settle((message,), lambda one: buried(one, failure, "rejected"))

    async def release(self, *messages: Message) -> None:
        await self._settle(messages, released)

    async def heartbeat(self) -> bool:
        if not self._steps.alive:
            return False
        async with self._beat_lock:
            consumer, sent_at = self.id, Moment.now()
            beat: list[ops.Op[Any]] = [
                ops.heartbeat(self._steps.keys, consumer, self.lease),
                ops.told(self._steps.keys),
            ]
            alive, told = await self._store.call(beat, self._beats)
        if alive:
            self._steps.renewed(sent_at)
            self._steps.tell(told)
        elif consumer == self.id:
            self._steps.end_life()
        return bool(alive)

    async def _settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        if not messages:
            return
        acks, moves = settleable(self._steps, messages, move)
        settled = settled_before(self._steps, messages)
        if self._lock.locked():
            codes = await self._settle_beside(acks, moves)
        else:
            async with self._lock:
                codes, _ = await self._store.run(self._steps.settle(acks, moves), self._connection)
        lost = len(messages) - len(codes) + codes.count(Settled.LOST)
        if lost:
            raise lease_lost(self._steps.keys.queue, lost, len(messages))
        advise_about(settled)

    async def _settle_beside(self, acks: Sequence[bytes], moves: Sequence[Move]) -> str:
        """Settle while another task waits in `claim`, which holds its connection for up to a second."""
        async with self._beat_lock:
            moves = await self._store.run(takeable(moves), self._beats)
            answer: ops.Claimed = await self._store.call(self._steps.settle_op(acks, moves), self._beats)
        self._steps.note_settled([*acks, *(move.element for move in moves)])
        if self._steps.lives:
            await self._report(self._steps.lives.end(acks, moves, answer.codes))
        return answer.codes

    async def _beat(self) -> None:
        while True:
            try:
                await self.heartbeat()
            except ReliqError:
                await asyncio.sleep(values.RECONNECT_PAUSE)
            else:
                await self._beats.wait_closed(self.lease / values.HEARTBEATS_PER_LEASE)
