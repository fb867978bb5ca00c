# Generated from reliq/aio/consumer.py by tools/generate_sync.py: do not edit
"""Claiming and settling by hand."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from reliq import ops
from reliq.client.partition_consumer import PartitionConsumer
from reliq.errors import ReliqError
from reliq.model import settings
from reliq.model.message import Message
from reliq.model.settings import Duration, seconds, whole
from reliq.protocol.partitions import Partitions
from reliq.transport.store import Store

_WAIT = 0.2  #: seconds of waiting for a message of one partition before the others are looked at


class Consumer:
    """Claims and settles by hand. A context: leaving it gives back what was not settled.

        with app.queue("orders").consumer(lease=30) as consumer:
            for message in consumer.claim(limit=10, wait=5):
                consumer.ack(message)

    While the context lasts, the lease is renewed beside: the messages stay with this consumer, however long the work
    takes. Without the context the lease is not renewed. Settling a message again is no error and changes nothing.
    One thread or task claims at a time.
    """

    def __init__(self, store: Store, partitions: Partitions, lease: Duration = settings.LEASE) -> None:
        self._store = store
        self._partitions = partitions
        self._first = PartitionConsumer(store, partitions.first.keys, lease)
        self._parts = {partitions.queue: self._first}  #: one for each partition, by its queue
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

    def __enter__(self) -> Self:
        self._entered = True
        self._first.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        failure: ReliqError | None = None
        for part in self._parts.values():
            try:
                part.__exit__(kind, error, at)
            except ReliqError as one:
                failure = failure or one
        if failure is not None:
            raise failure

    def claim(self, limit: int = 1, wait: Duration = 0) -> list[Message]:
        """Up to `limit` messages; empty when nothing came within `wait` seconds. Raises InvalidSetting once closed."""
        self._follow()
        if len(self._parts) == 1:
            return self._first.claim(limit, wait)
        whole(limit, "limit", 1, settings.MAX_BATCH)
        until = time.monotonic() + seconds(wait, "wait")
        while True:
            if messages := self._claim(limit):
                return messages
            if (left := until - time.monotonic()) <= 0.001:
                return []
            self._turn += 1
            part = [*self._parts.values()][self._turn % len(self._parts)]
            if messages := part.claim(limit, min(left, _WAIT)):
                return messages

    def _follow(self) -> None:
        """Add the consumers of partitions that are new."""
        for partition in self._store.run(self._partitions.every()):
            if partition.keys.queue not in self._parts:
                part = PartitionConsumer(self._store, partition.keys, self.lease)
                self._parts[partition.keys.queue] = part
                if self._entered:
                    part.__enter__()

    def _claim(self, limit: int) -> list[Message]:
        """Claim from those partitions that have messages, another one first each time."""
        parts = [*self._parts.values()]
        self._turn += 1
        first = self._turn % len(parts)
        parts = parts[first:] + parts[:first]
        (counts,) = self._store.run(ops.together(ops.ready_counts([part.keys for part in parts])))
        messages: list[Message] = []
        for part, count in zip(parts, counts, strict=True):
            if count and len(messages) < limit:
                messages += part.claim(limit - len(messages))
        return messages

    def ack(self, *messages: Message) -> None:
        """Handled: gone for good. Raises LeaseLost when the monitor had taken one back before."""
        self._each(messages, lambda part, some: part.ack(*some))

    def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        """Failed: try again after `delay`. Counts as a failure."""
        self._holder(message).retry(message, delay, error)

    def dead(self, message: Message, reason: str) -> None:
        """Give up: to the dead letters, with reason `rejected` and this text as its last error."""
        self._holder(message).dead(message, reason)

    def release(self, *messages: Message) -> None:
        """Hand back untouched: to the tail of the queue, taken next, nothing counted."""
        self._each(messages, lambda part, some: part.release(*some))

    def heartbeat(self) -> bool:
        """Renew the lease now; False when it is lost. The context does it anyway."""
        alive = [part.heartbeat() for part in self._parts.values()]
        return any(alive)

    def _holder(self, message: Message) -> PartitionConsumer:
        """Return the consumer of the message's partition; of a message that is not held here any one, to refuse it."""
        return next((part for part in self._parts.values() if part.holds(message)), self._first)

    def _each(self, messages: Sequence[Message], settle: Callable[[PartitionConsumer, list[Message]], None]) -> None:
        """Settle the messages of each partition; raises the first error in the end."""
        if len(self._parts) == 1:
            settle(self._first, [*messages])
            return
        shares: dict[PartitionConsumer, list[Message]] = {}
        for message in messages:
            shares.setdefault(self._holder(message), []).append(message)
        failure: ReliqError | None = None
        for part, some in shares.items():
            try:
                settle(part, some)
            except ReliqError as error:
                failure = failure or error
        if failure is not None:
            raise failure
