"""Claiming and settling by hand."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from weakref import WeakSet

from reliq.aio.partition_consumer import PartitionConsumer
from reliq.contract import values
from reliq.contract.values import Duration, seconds, whole
from reliq.errors import OutcomeUnknown, QueueFull, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.model.message import Message
from reliq.protocol.claiming import PATIENCE, pause, ready_counts, rotated
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.partitions import Partitions
from reliq.runtime.advice import advise
from reliq.transport.aiostore import AioStore

log = logging.getLogger("reliq.partitions")

_FAILURES = (RedisUnavailable, OutcomeUnknown, QueueFull)
_WAIT = 0.2  #: seconds of waiting for a message of one partition before the others are looked at


class Consumer:
    """Claims and settles by hand. A context: leaving it hands back what was not settled.

        async with app.queue("orders").consumer(lease=30) as consumer:
            for message in await consumer.claim(limit=10, wait=5):
                await consumer.ack(message)

    While the context lasts, the lease is renewed beside: the messages stay with this consumer, however long the work
    takes. Without the context the lease is not renewed. Settling a message again is no error and changes nothing.
    One thread or task claims at a time.
    """

    def __init__(self, store: AioStore, partitions: Partitions, lease: Duration = values.LEASE) -> None:
        self._store = store
        self._partitions = partitions
        self._first = PartitionConsumer(store, partitions.first.keys, lease)
        self._parts = {partitions.queue: self._first}  #: one for each partition, by its queue
        self._former: WeakSet[ConsumerSteps] = WeakSet()  #: of partitions that are not there any more
        self._turn = 0
        self._entered = False

    @property
    def id(self) -> str:
        """Its id in Redis; a new one after every lost lease."""
        return self._first.id

    @property
    def lease(self) -> float:
        """Seconds."""
        return self._first.lease

    async def __aenter__(self) -> Self:
        self._entered = True
        await self._first.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._entered = False
        failed: dict[str, ReliqError] = {}
        leaving = [name for name, part in self._parts.items() if part.steps.alive]
        for name, part in self._parts.items():
            try:
                await part.__aexit__(kind, error, at)
            except ReliqError as one:
                failed[name] = one
        if failed and len(failed) == len(leaving):
            raise next(iter(failed.values()))
        for name, failure in failed.items():
            text = "not_unregistered queue=%s error=%s: the monitor returns what it held when the lease ends"
            log.warning(text, name, failure)

    async def claim(self, limit: int = 1, wait: Duration = 0) -> list[Message]:
        """Return up to `limit` messages; none if nothing came within `wait` seconds. Raises InvalidSetting once closed.

        With partitions: one that fails stops no other; raises its error only if all of them fail.
        """
        if not self._entered:
            self._advise_to_enter()
        await self._follow()
        if len(self._parts) == 1:
            return await self._first.claim(limit, wait)
        whole(limit, "limit", 1, values.MAX_BATCH)
        until = time.monotonic() + seconds(wait, "wait")
        patient_until = max(until, time.monotonic() + self._store.timeout)
        failed = False
        while True:
            try:
                if failed:
                    await self._store.run(pause(_WAIT))
                messages = await self._claim(limit) or await self._wait(limit, until - time.monotonic())
            except (RedisUnavailable, OutcomeUnknown) as error:  # of all partitions
                if isinstance(error, RedisUnsuitable) or time.monotonic() > patient_until:
                    raise
                failed = True
                continue
            if messages or until - time.monotonic() <= 0.001:
                return messages

    def _advise_to_enter(self) -> None:
        """Warn about a claim outside of the context, unless the context has ended: then the claim is refused."""
        if not self._first.closed:
            name = self._first.keys.queue
            advise(
                f"a consumer of {name!r} claims outside of its context: its lease is not renewed, so other consumers "
                f"get its messages after {self.lease:g} s; write async with queue.consumer() as consumer"
            )

    async def _follow(self) -> None:
        """Add the consumers of partitions that are new, and end those of partitions that are not there any more."""
        if len(self._parts) == 1 and self._partitions.alone:
            return
        every = await self._store.run(self._partitions.known())
        for keys in every:
            if keys.queue not in self._parts:
                part = PartitionConsumer(self._store, keys, self.lease)
                self._parts[keys.queue] = part
                if self._entered:
                    await part.__aenter__()
        for name in self._parts.keys() - {keys.queue for keys in every}:
            if self._parts[name].idle:
                part = self._parts.pop(name)
                self._former.add(part.steps)
                with suppress(ReliqError):  # its lease is not renewed any more
                    await part.__aexit__(None, None, None)

    async def _claim(self, limit: int) -> list[Message]:
        """Claim from those partitions that have messages, another one first each time; raises if all fail."""
        parts, failing = [*self._parts.values()], self._partitions.failing
        counts = await self._store.run(ready_counts([part.keys for part in parts], failing, self._store.node_of))
        self._turn += 1
        messages: list[Message] = []
        failure: ReliqError | None = None
        try:
            for part in rotated(parts, self._turn):
                count = counts.get(part.keys.queue)
                if len(messages) == limit or count is None or not (count or part.owes):
                    continue
                try:
                    messages += await self._claim_from(part, limit - len(messages))
                except _FAILURES as error:
                    failure = error
        except BaseException:
            await self._take_back(messages)
            raise
        if failure is not None and not messages and all(part.keys.queue in failing for part in parts):
            raise failure
        return messages

    async def _claim_from(self, part: PartitionConsumer, limit: int, wait: float = 0) -> list[Message]:
        failing = self._partitions.failing
        try:
            messages = await part.claim(limit, wait, PATIENCE)
        except _FAILURES as error:
            failing.note(part.keys.queue, error)
            raise
        failing.works(part.keys.queue)
        return messages

    async def _wait(self, limit: int, left: float) -> list[Message]:
        """Wait a while for a message of one of the partitions, another one each time."""
        if left <= 0.001:
            return []
        parts = [part for part in self._parts.values() if part.keys.queue not in self._partitions.failing]
        if not parts:
            await self._store.run(pause(min(left, _WAIT)))
            return []
        self._turn += 1
        with suppress(*_FAILURES):
            return await self._claim_from(rotated(parts, self._turn)[0], limit, min(left, _WAIT))
        return []

    async def _take_back(self, messages: Sequence[Message]) -> None:
        """Note that the caller does not receive claimed messages."""
        for part in self._parts.values():
            if some := [message for message in messages if part.holds(message)]:
                await part.take_back(some)

    async def ack(self, *messages: Message) -> None:
        """Remove handled messages for good. Raises LeaseLost if the monitor has returned one of them to the queue."""
        await self._each(messages, lambda part, some: part.ack(*some))

    async def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        """Retry messages after `delay`; this counts as a failure."""
        await self._each((message,), lambda part, some: part.retry(some[0], delay, error))

    async def dead(self, message: Message, reason: str) -> None:
        """Make messages dead letters, with reason `rejected` and this text as the last error."""
        await self._each((message,), lambda part, some: part.dead(some[0], reason))

    async def release(self, *messages: Message) -> None:
        """Hand messages back unstarted: they are claimed next, and nothing is counted."""
        await self._each(messages, lambda part, some: part.release(*some))

    async def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost. The context does it anyway."""
        alive, failure = False, None
        for part in self._parts.values():
            try:
                alive = await part.heartbeat() or alive
            except ReliqError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return alive

    def _holder(self, message: Message) -> PartitionConsumer:
        """Return the consumer of the message's partition; of a message that is not held here any one, to refuse it."""
        return next((part for part in self._parts.values() if part.holds(message)), self._first)

    def _is_settled(self, message: Message) -> bool:
        """Whether its partition is not there any more: that held no message then."""
        return isinstance(message, Message) and message.holder in self._former

    async def _each(
        self, messages: Sequence[Message], settle: Callable[[PartitionConsumer, list[Message]], Awaitable[None]]
    ) -> None:
        """Settle the messages of each partition; raises the first error in the end."""
        if self._former:
            messages = [message for message in messages if not self._is_settled(message)]
        if len(self._parts) == 1:
            await settle(self._first, [*messages])
            return
        shares: dict[PartitionConsumer, list[Message]] = {}
        for message in messages:
            shares.setdefault(self._holder(message), []).append(message)
        failure: ReliqError | None = None
        for part, some in shares.items():
            try:
                await settle(part, some)
            except ReliqError as error:
                failure = failure or error
        if failure is not None:
            raise failure
