"""Claims of a stream from all homes of its queue: a micro-batch has messages of each that has some."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.stats import age_of_oldest
from reliq.ops import Steps
from reliq.spark.claims import Claims

_FRESH = 1.0  #: seconds for which the homes that were read last are those of the queue
_REST = 0.2  #: seconds until several homes that were all empty are looked at again


@dataclass(frozen=True)
class Backlog:
    """What is left in a queue. `oldest`: seconds since its oldest ready message was sent."""

    ready: int
    delayed: int
    oldest: float


@dataclass(frozen=True)
class Piece:
    """What a micro-batch has of one home: in the list of its consumer (place 0), or in a part beside it."""

    queue: str
    batch: int
    place: int
    messages: int


class StreamClaims:
    """The steps of one stream, on its driver."""

    def __init__(self, keys: QueueKeys, lease: float) -> None:
        self._first = Claims(keys, lease)
        self._every = [self._first]
        self._read_at = self._empty_at = float("-inf")

    def _homes(self) -> Steps[list[Claims]]:
        """Return the homes that may have messages."""
        if time.monotonic() - self._read_at > _FRESH:
            first = self._first
            names = (yield ops.layout(first.keys)).every(first.keys.queue)
            self._every = [first, *(Claims(QueueKeys(name), first.lease) for name in names[1:])]
            self._read_at = time.monotonic()
        return self._every

    def has_some(self) -> Steps[bool]:
        """Whether a claim may find messages."""
        if time.monotonic() - self._empty_at < _REST:
            return False
        every = yield from self._homes()
        found = any((yield [ops.list_length(one.keys.messages) for one in every]))
        self._note_empty(not found)
        return found

    def _note_empty(self, empty: bool) -> None:
        if empty and len(self._every) > 1:
            self._empty_at = time.monotonic()

    def claim(self, stream: str, batch: int, most: int) -> Steps[dict[str, int]]:
        """Claim up to `most` messages as this batch; return how many of each home.

        If the batch has messages, claimed before a crash, these are it.
        """
        if time.monotonic() - self._empty_at < _REST:
            return {}
        every = yield from self._homes()
        lengths = yield [ops.list_length(one.keys.messages) for one in every]
        found: dict[str, int] = {}
        if any((yield [op for one in every for op in one.counts(stream, batch)])):
            for piece in (yield from self.resume(stream, [batch])):
                found[piece.queue] = found.get(piece.queue, 0) + piece.messages
            if found:
                return found
        # The shortest first: what they leave of their shares goes to the others.
        filled = sorted((one for one in zip(lengths, every, strict=True) if one[0]), key=lambda one: one[0])
        for place, (_, one) in enumerate(filled):
            share = -(-(most - sum(found.values())) // (len(filled) - place))
            if share > 0 and (count := (yield from one.claim(stream, batch, share))):
                found[one.keys.queue] = count
        self._note_empty(not found)
        return found

    def resume(self, stream: str, batches: Sequence[int]) -> Steps[list["Piece"]]:
        """Renew the leases of batches that are to run; return what each still has."""
        found = []
        for home in (yield from self._homes()):
            queue = home.keys.queue
            for batch in batches:
                left = yield from home.resume(stream, batch)
                found += [Piece(queue, batch, place, messages) for place, messages in enumerate(left) if messages]
        return found

    def ack(self, stream: str, batch: int) -> Steps[int]:
        """Ack a batch that is committed; return how many messages."""
        acked = 0
        for one in (yield from self._homes()):
            acked += yield from one.ack(stream, batch)
        return acked

    def ready(self) -> Steps[int]:
        """Return how many messages are ready, of all priorities, with those behind others of their key."""
        every = yield from self._homes()
        return sum((yield [op for one in every for op in ops.ready_lengths(one.keys)]))

    def backlog(self) -> Steps[Backlog]:
        """Return what is left in the queue."""
        now = yield ops.server_time()
        found = Backlog(0, 0, 0.0)
        for one in (yield from self._homes()):
            keys = one.keys
            *ready, delayed, oldest = yield [
                *ops.ready_lengths(keys),
                ops.zset_size(keys.delayed),
                ops.from_tail(keys.messages, 0, 1),
            ]
            age = max(found.oldest, age_of_oldest(keys.queue, oldest, now))
            found = Backlog(found.ready + sum(ready), found.delayed + delayed, age)
        return found
