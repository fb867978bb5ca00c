"""Claims of a stream: each micro-batch has its own consumer, with the batch as its processing list.

The list does not change between claim and ack, so a repeated batch reads the same messages.
"""

from collections.abc import Sequence

from reliq import ops
from reliq.contract.values import MAX_BATCH
from reliq.errors import OutcomeUnknown
from reliq.model.element import BLANK, Undecodable
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Move, Settled, Steps
from reliq.protocol.limits import Limits
from reliq.protocol.outcomes import expired, passed_over, undecodable

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
        consumer = consumer_of(stream, batch)
        held = yield ops.held_count(self.keys, consumer)
        if not held and (yield ops.list_length(self.keys.messages)):
            yield [ops.announce(self.keys.queue), ops.register(self.keys, consumer, self.lease)]
            held = yield from self._fill(consumer, most)
            if not held:
                yield ops.forget(self.keys, consumer, leaving=True)
        return int(held)

    def _fill(self, consumer: str, most: int) -> Steps[int]:
        held = 0
        while held < most:
            wanted = min(MAX_BATCH, most - held)
            try:
                answer = yield from self._take(consumer, wanted)
            except OutcomeUnknown:  # the answer was lost: count what has arrived
                held = yield ops.held_count(self.keys, consumer)
                continue
            held += len(answer.elements) - (yield from self._bury(consumer, answer))
            if len(answer.elements) < wanted:
                break
        return held

    def _take(self, consumer: str, wanted: int) -> Steps[ops.Claimed]:
        answer: ops.Claimed = yield ops.claim(self.keys, consumer, self.lease, wanted, _ROOM)
        if answer.status == "limited":
            answer = yield from Limits(self.keys).claim(consumer, self.lease, wanted, _ROOM)
        return answer

    def _bury(self, consumer: str, answer: ops.Claimed) -> Steps[int]:
        """Bury undecodable and expired messages, as in any consumer; return how many."""
        dying: list[Move] = []
        for element in answer.elements:
            try:
                message = Message.decode(self.keys.queue, element)
            except Undecodable:
                dying.append(passed_over(element) if element == BLANK else undecodable(element))
                continue
            if 0 < message.expires_at <= answer.now:
                dying.append(expired(message))
        if dying:
            yield ops.settle(self.keys, consumer, self.lease, (), dying)
        return len(dying)

    def resume(self, stream: str, batches: Sequence[int]) -> Steps[list[int]]:
        """Renew the leases of batches that are to run; return how many messages each still has."""
        lengths = []
        for consumer in (consumer_of(stream, batch) for batch in batches):
            held = yield ops.held_count(self.keys, consumer)
            if held:
                yield ops.register(self.keys, consumer, self.lease)
                held = yield ops.held_count(self.keys, consumer)
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
            while elements := (yield ops.from_tail(self.keys.processing(consumer), 0, MAX_BATCH)):
                oldest = elements[::-1]
                answer = yield ops.settle(self.keys, consumer, self.lease, oldest, row=len(oldest))
                if answer.status == "elsewhere":  # the monitor has taken them back meanwhile
                    answer = yield ops.settle(self.keys, consumer, self.lease, oldest)
                acked += answer.codes.count(Settled.DONE)
            yield ops.forget(self.keys, consumer, leaving=True)
        return acked

    def page(self, stream: str, batch: int, first: int, after: int) -> ops.Op[list[bytes]]:
        """Return the op that reads a range of a batch, counted from the tail of its list (oldest = 0); newest first."""
        return ops.from_tail(self.keys.processing(consumer_of(stream, batch)), first, after)
