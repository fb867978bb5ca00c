"""Ops of a consumer: registration, lease, claims, and settling the messages it holds."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from reliq.contract import outcomes, values
from reliq.model.element import decode_envelope, name_of
from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.request import Op, Record, milliseconds, optional_int, scripted

Told = tuple[tuple[str, int], ...]  #: ids of cancelled messages, and instructions (see Instruction), each with its ms
NOWHERE: Mapping[bytes, int] = MappingProxyType({})  #: no message has a known place
NO_RESULTS: Mapping[bytes, tuple[str, bytes]] = MappingProxyType({})
Destination = outcomes.Destination
Settled = outcomes.Settled
CLAIMS_NEXT: Final = -1  #: in place of the number of messages that `settle` claims
_UNKNOWN = "?"  #: the script reads the batches of a row from its messages


class Claimed(msgspec.Struct, frozen=True):
    """The reply of claim, and of settle with a claim. `codes`: one letter of `Settled` for each settled message.

    `elsewhere`: the acks in a row are not the oldest messages of the processing list, and nothing was done. `limited`:
    nothing was claimed, because only `claim_limited` knows the limits of the queue.
    """

    status: Literal["ok", "paused", "limited", "lost", "elsewhere", "uncounted"]
    now: int
    elements: list[bytes]
    codes: str = ""


_ENDS = frozenset(one for one in Destination if one.leaves or one is Destination.DEAD)


@dataclass(frozen=True, slots=True)
class Mark:
    """The key that says for `seconds` that a message was handled."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Move:
    """Where a message that is not acked goes from the processing list.

    `counter` is the field of the queue's counters that is incremented with it.
    """

    element: bytes
    destination: Destination
    counter: str
    id: str = ""
    again: bytes = b""
    delay: float = 0.0  #: seconds
    mark: Mark | None = None  #: with destination DONE
    started: bool = True  #: False: what its claim took of the rates of the queue and of its key goes back to them
    readable: bool = True  #: False: the element does not decode, so only all of its bytes tell it from others

    @property
    def name(self) -> bytes:
        """The bytes by which the script finds the element."""
        return name_of(self.element) if self.readable else self.element

    @property
    def goes_back(self) -> bool:
        """Whether the message is handled later: not if it is cancelled."""
        return bool(self.id) and self.destination not in _ENDS


def register(keys: QueueKeys, consumer: str, lease: float, marks: bool = False, about: bytes | None = None) -> Op[int]:
    """Register a consumer. `marks`: it marks what it tries, with `mark_tried` or `mark_several`.

    `about`: its process, for people who look (reliq.model.worker).
    """
    return scripted(
        signatures.register(
            keys, lease=keys.lease(consumer), consumer=consumer, lease_ms=milliseconds(lease), marks=marks, about=about
        )
    )


def describe(keys: QueueKeys, consumer: str, about: bytes) -> Op[int]:
    """Replace what is known about the process of a consumer; the answer is 0 if it has left."""
    return scripted(signatures.describe(keys, consumer=consumer, about=about))


def described(keys: QueueKeys) -> Op[list[bytes]]:
    """Read what is known about the processes of all consumers: consumer, text, consumer ..."""
    return Op(("HGETALL", keys.workers))


def description(keys: QueueKeys, consumer: str) -> Op[bytes | None]:
    """Read what is known about the process of one consumer."""
    return Op(("HGET", keys.workers, consumer))


def mark_tried(keys: QueueKeys, consumer: str, tag: str) -> Op[int]:
    """Announce that this consumer starts a redelivered message, and its process no other one meanwhile."""
    return scripted(signatures.mark_tried(keys, consumer=consumer, mark=f"-{tag}"))


def mark_several(keys: QueueKeys, consumer: str, count: int) -> Op[int]:
    """Announce that this consumer starts a redelivered message, where up to so many run at the same time."""
    return scripted(signatures.mark_tried(keys, consumer=consumer, mark=f"*{count}"))


def claim(
    keys: QueueKeys,
    consumer: str,
    lease: float,
    limit: int,
    room: int = values.CLAIM_BYTES,
    held: int | None = None,
) -> Op[Claimed]:
    """Claim up to `limit` messages, until they have `room` bytes.

    `held`: after `block`, how many messages the consumer held before it; a history notes those beyond as claimed.

    Not repeatable: after a lost reply only a read-back finds the claimed messages.
    """
    call = signatures.claim(
        keys,
        processing=keys.processing(consumer),
        lease=keys.lease(consumer),
        lease_ms=milliseconds(lease),
        limit=limit,
        room=room,
        consumer=consumer,
        held=held,
    )
    return scripted(call, _read_claimed, repeatable=False)


def block(keys: QueueKeys, consumer: str, seconds: float) -> Op[bytes | None]:
    """Wait for one message and claim it: the claim of an idle consumer."""
    processing = keys.processing(consumer)
    command = ("BLMOVE", keys.messages, processing, "RIGHT", "LEFT", f"{seconds:.3f}")
    return Op(command, repeatable=False, blocks=seconds)


def settle(
    keys: QueueKeys,
    consumer: str,
    lease: float,
    acks: Sequence[bytes],
    moves: Sequence[Move] = (),
    limit: int = 0,
    uncounted: Collection[bytes] = (),
    *,
    room: int = values.CLAIM_BYTES,
    row: int = 0,
    places: Mapping[bytes, int] = NOWHERE,
    results_kept: float = 0.0,
    results: Mapping[bytes, tuple[str, bytes]] = NO_RESULTS,
    batches: Mapping[bytes, str] | None = None,
) -> Op[Claimed]:
    """Ack messages, move others, and claim up to `limit` new ones. Repeatable only if it claims nothing.

    `limit`: CLAIMS_NEXT if the caller claims with `claim_limited` at once, so that no other consumer need be told.

    `uncounted`: elements that BLMOVE has moved here without counting them; the script counts them as claimed now.
    `row`: so many of the acks, from the first on, should be the oldest messages of the processing list, in this order.
    `places`: where in the list the other messages should be, counted from 0 at the tail.
    `results_kept`: seconds for which results are kept, 0 if the handler has none. `results`: of acks, by element: id of
    the message, and its result. `batches`: of all messages that are in one, by element; None: the script looks at them.
    """
    in_row, others = acks[:row], acks[row:]
    not_started = [position for position, move in enumerate(moves, 1) if not move.started]
    call = signatures.settle(
        keys,
        processing=keys.processing(consumer),
        lease=keys.lease(consumer),
        marks=[move.mark.key for move in moves if move.mark],
        rates=keys.rates if not_started else (),
        outcomes=keys.outcomes if results_kept else (),
        lease_ms=milliseconds(lease),
        limit=limit,
        room=room,
        row=row,
        first_name=name_of(in_row[0]) if row else b"",
        last_name=name_of(in_row[-1]) if row else b"",
        row_uncounted=sum(element in uncounted for element in in_row) if uncounted else 0,
        ack_count=len(others),
        uncounted=_positions(others, moves, uncounted) if uncounted else "",
        not_started=" ".join(map(str, not_started)),
        results_ms=milliseconds(results_kept),
        row_batches=_by_batch(in_row, batches),
        acks=[_ack(element, places) for element in others],
        moves=[_move(move, places) for move in moves],
        results=[_result(element, results) for element in acks] if results_kept else (),
    )
    return scripted(call, _read_settled, repeatable=limit <= 0)


def _positions(others: Sequence[bytes], moves: Sequence[Move], uncounted: Collection[bytes]) -> str:
    every = (*others, *(move.element for move in moves))
    return " ".join(str(position) for position, element in enumerate(every, 1) if element in uncounted)


def _ack(element: bytes, places: Mapping[bytes, int]) -> Record:
    return signatures.settle_ack(name=name_of(element), size=len(element), place=places.get(element, 0))


def _move(move: Move, places: Mapping[bytes, int]) -> Record:
    return signatures.settle_move(
        name=move.name,
        size=len(move.element),
        place=places.get(move.element, 0),
        destination=move.destination,
        counter=move.counter,
        id=move.id,
        again=move.again,
        delay=milliseconds(move.delay),
        mark_ms=milliseconds(move.mark.seconds) if move.mark else 0,
        sent=decode_envelope(move.element).enqueued_at if move.goes_back else "",
    )


def _result(element: bytes, results: Mapping[bytes, tuple[str, bytes]]) -> Record:
    identity, result = results.get(element, ("", b""))  # none: the lease was lost meanwhile
    return signatures.settle_result(result_id=identity, result=result)


def _by_batch(elements: Sequence[bytes], batches: Mapping[bytes, str] | None) -> str:
    if batches is None:
        return _UNKNOWN
    if not batches:
        return ""
    counts = Counter(batches[one] for one in elements if one in batches)
    return " ".join(f"{batch} {count}" for batch, count in counts.items())


def _read_claimed(reply: list[Any]) -> Claimed:
    return Claimed(reply[0].decode(), reply[1], reply[2:])


def _read_settled(reply: list[Any]) -> Claimed:
    if len(reply) == 2:
        return Claimed(reply[0].decode(), reply[1], [])
    return Claimed(reply[0].decode(), reply[1], reply[3:], reply[2].decode())


def heartbeat(keys: QueueKeys, consumer: str, lease: float) -> Op[bool]:
    return scripted(signatures.heartbeat(lease=keys.lease(consumer), lease_ms=milliseconds(lease)), bool)


def told(keys: QueueKeys) -> Op[Told]:
    """Read what consumers of the queue are told: messages that were cancelled in their hands, and instructions."""
    return Op(("HGETALL", keys.told), _read_told)


def _read_told(reply: list[bytes]) -> Told:
    return tuple((identity.decode(), int(at)) for identity, at in zip(reply[::2], reply[1::2], strict=True))


def forget_told(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Note that cancelled messages have left the queue."""
    return Op(("HDEL", keys.told, *ids))


def end(keys: QueueKeys, consumer: str) -> Op[int]:
    """End a lease: from now on this consumer claims nothing, and the monitor takes back the messages it still holds."""
    return Op(("DEL", keys.lease(consumer)))


def read_back(keys: QueueKeys, consumer: str) -> Op[list[bytes]]:
    """Read the elements that this consumer holds, newest first."""
    return Op(("LRANGE", keys.processing(consumer), 0, -1))


def stored_bodies(keys: QueueKeys, references: Sequence[bytes]) -> Op[list[bytes | None]]:
    """Read bodies that are stored apart from their elements; None for one that is not there."""
    return Op(("HMGET", keys.bodies, *references))


def newest(keys: QueueKeys, consumer: str, groups: Sequence[str]) -> Op[list[bytes]]:
    """Replace claimed messages of these groups by newer ones that wait; the reply has the element of each group."""
    return scripted(signatures.newest(keys, processing=keys.processing(consumer), groups=groups))


def held_count(keys: QueueKeys, consumer: str) -> Op[int]:
    return Op(("LLEN", keys.processing(consumer)))


def lease_end(keys: QueueKeys, consumer: str) -> Op[int | None]:
    """Read the deadline of a lease, ms of the server's clock; None without a lease."""
    return Op(("GET", keys.lease(consumer)), optional_int)


def lease_ends(leases: Sequence[str]) -> Op[list[int | None]]:
    """Read the deadlines of leases by their keys."""
    return Op(("MGET", *leases), lambda reply: [*map(optional_int, reply)])


def lease_known(keys: QueueKeys, lease: str) -> Op[bool]:
    """Read whether an HTTP lease is valid, or ended because everything was settled."""
    return Op(("EXISTS", keys.lease(lease), keys.settled(lease)), bool)


def was_handled(mark: str) -> Op[bool]:
    """Read whether the mark exists that a message of a run-once handler is done."""
    return Op(("EXISTS", mark), bool)


def cycle_entries(keys: QueueKeys, groups: Sequence[str]) -> Op[list[bytes | None]]:
    """Read, for each group, the id of its circulating message, a blank, and the member; None without one."""
    return Op(("HMGET", keys.cycle, *groups))


def forget(keys: QueueKeys, consumer: str, leaving: bool = False, settled_for: float | None = None) -> Op[bool]:
    """Unregister a consumer without messages. `leaving`: although its lease is not over.

    `settled_for`: the seconds for which it is remembered that an HTTP lease was settled.
    """
    call = signatures.forget(
        keys,
        processing=keys.processing(consumer),
        lease=keys.lease(consumer),
        settled=None if settled_for is None else keys.settled(consumer),
        consumer=consumer,
        leaving=leaving,
        remembered=milliseconds(settled_for or 0),
    )
    return scripted(call, bool)
