"""Claims of a stream: each micro-batch has its own consumer, with the batch as its processing list.

The list does not change between claim and ack, so a repeated batch reads the same messages.
"""

from collections.abc import Sequence

from reliq import ops
from reliq.contract.values import MAX_BATCH
from reliq.errors import OutcomeUnknown
from reliq.model.keys import QueueKeys
from reliq.model.worker import encoded
from reliq.ops import Settled, Steps
from reliq.protocol.claimant import Claimant
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.limits import Limits
from reliq.runtime.process import this_process

_ROOM = 2**40  #: bytes; no limit, because the tasks read the bodies later, a few megabytes at a time
_PREFIX = "s"  # not one of those in reliq.model.keys: only the lease decides, as a stopped stream has no connection


def consumer_of(stream: str, batch: int) -> str:
    return f"{_PREFIX}{stream}.{batch}"


class Claims:
    """The steps of one stream, on its driver."""

    def __init__(self, keys: QueueKeys, lease: float) -> None:
        self.keys = keys
        self.lease = lease

    def claim(self, stream: str, batch: int, most: int) -> Steps[int]:
        """Claim up to `most` messages as this batch; return its size. Messages claimed before a crash are kept."""
        claimant = self._claimant(consumer_of(stream, batch))
        held = yield ops.held_count(self.keys, claimant.id)
        if not held and (yield ops.list_length(self.keys.messages)):
            yield [ops.announce(self.keys.queue), claimant.register(about=self._about(stream))]
            held = yield from self._fill(claimant, most)
            if not held:
                yield claimant.forget()
        return int(held)

    def _claimant(self, consumer: str) -> Claimant:
        return Claimant(self.keys, consumer, self.lease)

    def _about(self, stream: str) -> bytes:
        return encoded(this_process(f"Spark stream {stream}"), self.lease)

    def _fill(self, claimant: Claimant, most: int) -> Steps[int]:
        held, limits = 0, Limits(self.keys, self.lease)
        while held < most:
            wanted = min(MAX_BATCH, most - held)
            try:
                answer = yield from claimant.claim(limits, wanted, _ROOM)
            except OutcomeUnknown:  # the answer was lost: count what has arrived
                held = yield ops.held_count(self.keys, claimant.id)
                continue
            held += yield from self._sorted(claimant, answer)
            if len(answer.elements) < wanted:
                break
        return held

    def _sorted(self, claimant: Claimant, answer: ops.Claimed) -> Steps[int]:
        """Bury undecodable and expired messages, as in any consumer; return how many are left."""
        arrivals = ConsumerSteps(self.keys, claimant.id, self.lease).arrivals
        arrivals.sort(answer.elements, answer.now)
        yield from arrivals.bury(lambda moves: claimant.settle_op((), moves))
        return len(arrivals.messages)

    def resume(self, stream: str, batches: Sequence[int]) -> Steps[list[int]]:
        """Renew the leases of batches that are to run; return how many messages each still has."""
        lengths = []
        for claimant in (self._claimant(consumer_of(stream, batch)) for batch in batches):
            held = yield ops.held_count(self.keys, claimant.id)
            if held:
                yield claimant.register(about=self._about(stream))
                held = yield ops.held_count(self.keys, claimant.id)
            lengths.append(int(held))
        return lengths

    def ack(self, stream: str, up_to: int) -> Steps[int]:
        """Ack all batches up to this one; return how many messages. A batch with an expired lease has none left."""
        acked = 0
        consumers = yield ops.members(self.keys.consumers)
        for consumer in consumers:
            owner, _, batch = consumer.partition(".")
            if owner != _PREFIX + stream or not batch.isdecimal() or int(batch) > up_to:
                continue
            claimant = self._claimant(consumer)
            while elements := (yield ops.from_tail(self.keys.processing(consumer), 0, MAX_BATCH)):
                (answer,) = yield from claimant.settle(elements[::-1], in_row=True)
                acked += answer.codes.count(Settled.DONE)
            yield claimant.forget()
        return acked

    def page(self, stream: str, batch: int, first: int, after: int) -> ops.Op[list[bytes]]:
        """Return the op that reads a range of a batch, counted from the tail of its list (oldest = 0); newest first."""
        return ops.from_tail(self.keys.processing(consumer_of(stream, batch)), first, after)
