"""A consumer as Redis knows it: an id with a lease and a processing list. Every way to consume goes through here.

No other module registers a consumer, claims or settles. `reliq.protocol.consumer` adds what a worker or a consumer by
hand remembers between two calls; leases over HTTP and batches of Spark remember nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from reliq import ops
from reliq.model.element import size_of
from reliq.model.keys import QueueKeys
from reliq.ops import Claimed, Move, Op, Steps
from reliq.protocol.limits import COUNTING, Limits, counted
from reliq.protocol.oversized import takeable
from reliq.runtime.pieces import pieces

AT_ONCE: Final = 256  #: messages that one call claims, or acks in a row: Redis serves no other client meanwhile
_LIMITED_AT_ONCE = 50  #: claimed where each is compared with the limits of the queue
_SINGLY_AT_ONCE = 128  #: acked, not in a row
_MOVED_AT_ONCE = 64  #: settled otherwise than by an ack


@dataclass(slots=True)
class Claimant:
    """A consumer by its id in Redis, which changes when its lease is lost."""

    keys: QueueKeys
    id: str
    lease: float  #: seconds; 0: settling does not renew it
    renews: bool = True  #: whether claims and settlements renew the lease

    @property
    def _renewed_for(self) -> float:
        return self.lease if self.renews else 0.0

    def register(self, *, marks: bool = False, about: bytes | None = None) -> Op[int]:
        """Return the op that makes it known to monitors, with a lease; `marks`: it says what it tries.

        `about`: its process.
        """
        return ops.register(self.keys, self.id, self.lease, marks, about)

    def forget(self) -> Op[bool]:
        """Return the op that unregisters it, unless it holds messages."""
        return ops.forget(self.keys, self.id, leaving=True)

    def claim(self, limits: Limits, limit: int, room: int) -> Steps[Claimed]:
        """Claim up to `limit` messages of `room` bytes, within the limits of the queue if it has some."""
        answer, asked = yield from self._claim_some(limits, limit, room)
        elements, latest = [*answer.elements], answer
        while len(latest.elements) == asked and (left := limit - len(elements)):
            room -= sum(map(size_of, latest.elements))
            if room <= 0:
                break
            latest, asked = yield from self._claim_some(limits, left, room)
            if latest.status == "lost":
                return latest
            elements += latest.elements
        return msgspec.structs.replace(answer, elements=elements)

    def _claim_some(self, limits: Limits, limit: int, room: int) -> Steps[tuple[Claimed, int]]:
        """Claim as many of them as one call takes; return also how many that are."""
        if not limits.apply:
            some = min(limit, AT_ONCE)
            answer: Claimed = yield self.claim_op(some, room)
            if not limits.note_plain(answer):
                return answer, some
        some = min(limit, _LIMITED_AT_ONCE)
        limited: ops.LimitedClaim = yield self._limited_op(limits, some, room)
        while limited.status == "uncounted":
            if not (yield from counted(self.keys, self.id)):
                limited = ops.LimitedClaim("limited", limited.now, [], reason="concurrency", wait=COUNTING)
            else:
                limited = yield self._limited_op(limits, some, room)
        limits.note(limited)
        return limited, some

    def _limited_op(self, limits: Limits, limit: int, room: int) -> Op[ops.LimitedClaim]:
        return ops.claim_limited(self.keys, self.id, self._renewed_for, limit, room, limits.reports, limits.suspect)

    def claim_op(self, limit: int, room: int, held: int | None = None) -> Op[Claimed]:
        """Return the op that claims in a queue without limits; `held`: as for `ops.claim`."""
        return ops.claim(self.keys, self.id, self._renewed_for, limit, room, held)

    def settle(
        self, acks: Sequence[bytes], moves: Sequence[Move] = (), *, in_row: bool = False, also: Sequence[Op[Any]] = ()
    ) -> Steps[list[Any]]:
        """Settle, and do `also` in the same round trip; return the answers, that of the settlement first.

        `in_row`: the acks should be the oldest messages of its list. A message that Redis would not take back with its
        changes becomes a dead letter as it is.
        """
        *first, (acks, moves) = settlements(acks, (yield from takeable(moves)), len if in_row else _not_in_row)
        codes = ""
        for piece in first:
            codes += (yield from self._settle(*piece, in_row, ()))[0].codes
        answers: list[Any] = yield from self._settle(acks, moves, in_row, also)
        answers[0] = msgspec.structs.replace(answers[0], codes=codes + answers[0].codes)
        return answers

    def _settle(
        self, acks: Sequence[bytes], moves: Sequence[Move], in_row: bool, also: Sequence[Op[Any]]
    ) -> Steps[list[Any]]:
        answers: list[Any] = yield [self.settle_op(acks, moves, row=len(acks) if in_row else 0), *also]
        if answers[0].status == "elsewhere":  # the monitor has taken them back meanwhile
            answers[0] = yield self.settle_op(acks, moves)
        return answers

    def settle_op(self, acks: Sequence[bytes], moves: Sequence[Move] = (), limit: int = 0, **known: Any) -> Op[Claimed]:
        """Return the op that settles, and claims up to `limit`; `known`: what the caller knows, for `ops.settle`."""
        return ops.settle(self.keys, self.id, self._renewed_for, acks, moves, limit, **known)


def _not_in_row(acks: Sequence[bytes]) -> int:
    return 0


def settlements(
    acks: Sequence[bytes], moves: Sequence[Move], row_of: Callable[[Sequence[bytes]], int] = _not_in_row
) -> list[tuple[Sequence[bytes], Sequence[Move]]]:
    """Return what one call after another settles, acks first; one that settles nothing if there is nothing.

    `row_of`: how many of the acks, from the first on, should be the oldest messages of the list; asked only of many.
    """
    in_row = len(acks) > _SINGLY_AT_ONCE and row_of(acks) == len(acks)
    acked = AT_ONCE if in_row else _SINGLY_AT_ONCE
    if len(acks) <= acked and len(moves) <= _MOVED_AT_ONCE:
        return [(acks, moves)]
    return [
        *((some, moves[:0]) for some in pieces(acks, acked)),
        *((acks[:0], some) for some in pieces(moves, _MOVED_AT_ONCE)),
    ]
