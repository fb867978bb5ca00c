"""Claims of a stream: each micro-batch has a consumer of its own, with a processing list, and parts beside it.

None of them changes between claim and ack, so a repeated batch reads the same messages.
"""

from collections.abc import Callable, Sequence

from reliq import ops
from reliq.contract.values import MAX_BATCH
from reliq.errors import OutcomeUnknown
from reliq.features.receipts.spark import Runs
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.worker import encoded
from reliq.ops import Settled, Steps
from reliq.protocol.claimant import Claimant
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.limits import Limits
from reliq.runtime.process import this_process
from reliq.spark.batch_parts import BatchPart

#: What features take beside what a batch claims.
PARTS: tuple[Callable[[QueueKeys, str, float], BatchPart], ...] = (Runs,)
_ROOM = 2**40  #: bytes; no limit, because the tasks read the bodies later, a few megabytes at a time
_PREFIX = "s"  # not one of those in reliq.model.keys: only the lease decides, as a stopped stream has no connection


def consumer_of(stream: str, batch: int) -> str:
    return f"{_PREFIX}{stream}.{batch}"


class Claims:
    """The steps of one stream, on its driver."""

    def __init__(self, keys: QueueKeys, lease: float) -> None:
        self.keys = keys
        self.lease = lease

    def counts(self, stream: str, batch: int) -> list[ops.Op[int]]:
        """Return the ops that count the messages of a batch: those in its processing list, then those of each part."""
        consumer = consumer_of(stream, batch)
        return [ops.held_count(self.keys, consumer), *(part.count() for part in self._parts(consumer))]

    def claim(self, stream: str, batch: int, most: int) -> Steps[int]:
        """Claim up to `most` messages as this batch; return its size. Messages claimed before a crash are kept."""
        claimant = self._claimant(consumer_of(stream, batch))
        held = sum((yield from self.resume(stream, batch)))
        if not held and (yield ops.list_length(self.keys.messages)):
            yield [ops.announce(self.keys.queue), claimant.register(about=self._about(stream))]
            held = yield from self._fill(claimant, stream, batch, most)
            if not held:
                yield claimant.forget()
        return int(held)

    def _claimant(self, consumer: str) -> Claimant:
        return Claimant(self.keys, consumer, self.lease)

    def _parts(self, consumer: str) -> list[BatchPart]:
        return [part(self.keys, consumer, self.lease) for part in PARTS]

    def _about(self, stream: str) -> bytes:
        return encoded(this_process(f"Spark stream {stream}"), self.lease)

    def _fill(self, claimant: Claimant, stream: str, batch: int, most: int) -> Steps[int]:
        held, limits = 0, Limits(self.keys, self.lease)
        while held < most:
            wanted = min(MAX_BATCH, most - held)
            try:
                answer = yield from claimant.claim(limits, wanted, _ROOM)
                heads = yield from self._sort_out(claimant, answer)
                held += len(heads)
                for part in self._parts(claimant.id):
                    held += yield from part.take(heads, most - held, evenly=limits.apply)
            except OutcomeUnknown:  # the answer was lost: count what has arrived
                held = sum((yield self.counts(stream, batch)))
                continue
            if len(answer.elements) == len(heads) < wanted:  # behind one that has died the next of its key is ready
                break
        return held

    def _sort_out(self, claimant: Claimant, answer: ops.Claimed) -> Steps[Sequence[Message]]:
        """Bury undecodable and expired messages and remove cancelled ones, as any consumer; return the others."""
        arrivals = ConsumerSteps(self.keys, claimant.id, self.lease).arrivals
        arrivals.sort(answer.elements, answer.now)
        for drop in (arrivals.bury, arrivals.drop_cancelled):
            yield from drop(lambda moves: claimant.settle_op((), moves))
        return arrivals.messages

    def resume(self, stream: str, batch: int) -> Steps[list[int]]:
        """Renew the leases of a batch that is to run; return how many messages its list and each part still have."""
        if not any((yield self.counts(stream, batch))):
            return []
        claimant = self._claimant(consumer_of(stream, batch))
        yield claimant.register(about=self._about(stream))
        yield from self.keep(claimant.id)
        counts: list[int] = yield self.counts(stream, batch)
        return counts

    def keep(self, consumer: str) -> Steps[None]:
        """Renew the leases of the parts; that of the list is the consumer's."""
        for part in self._parts(consumer):
            yield from part.keep()

    def ack(self, stream: str, batch: int) -> Steps[int]:
        """Ack a batch that is committed; return how many messages. One with an expired lease has none left.

        The batches before it are acked, as none is claimed before that. What is held as one of them was claimed since,
        by another driver with this checkpoint, which Spark has ended for it: it was written nowhere, and goes back.
        """
        acked = 0
        consumers = yield ops.members(self.keys.consumers)
        for consumer in consumers:
            owner, _, number = consumer.partition(".")
            if owner != _PREFIX + stream or not number.isdecimal() or int(number) > batch:
                continue
            if int(number) < batch:
                yield from self.release(consumer)
                continue
            claimant = self._claimant(consumer)
            while elements := (yield ops.from_tail(self.keys.processing(consumer), 0, MAX_BATCH)):
                (answer,) = yield from claimant.settle(elements[::-1], in_row=True)
                acked += answer.codes.count(Settled.DONE)
            for part in self._parts(consumer):
                acked += yield from part.ack()
            yield claimant.forget()
        return acked

    def release(self, consumer: str) -> Steps[None]:
        """End the leases of a batch: its messages go back to the queue, with a monitor's next look at the latest."""
        yield ops.end(self.keys, consumer)
        for part in self._parts(consumer):
            yield from part.release()

    def cuts(self, stream: str, batch: int, place: int, length: int, size: int) -> Steps[list[tuple[int, int]]]:
        """Return ranges of about `size` messages of a batch; place 0 is its list, the others are its parts."""
        if place:
            return (yield from self._parts(consumer_of(stream, batch))[place - 1].cuts(size))
        return [(first, min(first + size, length)) for first in range(0, length, size)]

    def page(self, stream: str, batch: int, place: int, first: int, after: int) -> Steps[list[bytes]]:
        """Read a range of a batch; oldest first."""
        consumer = consumer_of(stream, batch)
        if place:
            return (yield from self._parts(consumer)[place - 1].read(first, after))
        elements = yield ops.from_tail(self.keys.processing(consumer), first, after)
        return list(elements[::-1])
