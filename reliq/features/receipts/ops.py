"""Ops of messages in flight: receive, return, set the visibility, delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reliq.contract import values
from reliq.features.receipts import signatures
from reliq.model.element import name_of
from reliq.model.keys import QueueKeys, dedup_digest
from reliq.ops.request import Op, as_text, milliseconds, scripted

TURN = 16  #: characters of a turn in line, before an element


@dataclass(frozen=True, slots=True)
class Flight:
    """A message that goes into flight. `line`: group and turn of one that waits for its key; empty: it was claimed.

    `mark`: a text without a blank, before its name in the list of the attempt.
    """

    former: bytes  #: its element before
    again: bytes
    line: bytes = b""
    mark: bytes = b""

    @property
    def name(self) -> bytes:
        return name_of(self.again)


def receive(
    keys: QueueKeys,
    consumer: str,
    visible: float,
    flights: Sequence[Flight],
    attempt: str | None,
    kept: float = 0.0,
) -> Op[tuple[str, int]]:
    """Put messages in flight; answers a letter for each, and how many messages of the queue are in flight.

    `kept`: seconds for which the list of the attempt has them, behind those of earlier calls; 0: in their place.
    """
    moves = (
        signatures.receive_move(
            former=name_of(one.former), again=one.again, name=one.name, line=one.line, mark=one.mark
        )
        for one in flights
    )
    call = signatures.receive(
        keys,
        processing=keys.processing(consumer),
        attempt=None if attempt is None else keys.attempt_of(dedup_digest(attempt)),
        visible=milliseconds(visible),
        kept=milliseconds(kept),
        consumer=consumer,
        moves=moves,
    )
    return scripted(call, lambda reply: (reply[0].decode(), reply[1]))


class Ready(NamedTuple):
    """What a receive without a claim has brought."""

    rest: str  #: what may be left: "due" messages, or those that need a "claim"; empty: none
    in_flight: int  #: messages of the queue
    elements: list[bytes]  #: oldest first


def receive_ready(
    keys: QueueKeys, visible: float, limit: int, most_receives: int | None, nonces: Sequence[bytes], *, runs: bool
) -> Op[Ready]:
    """Put up to `limit` ready messages in flight, each with one of these nonces of eight bytes."""
    call = signatures.receive_ready(
        keys,
        visible=milliseconds(visible),
        limit=limit,
        room=values.CLAIM_BYTES,
        most=values.MAX_COUNT if most_receives is None else most_receives,
        runs=runs,
        nonces=b"".join(nonces),
    )
    return scripted(call, lambda reply: Ready(reply[0].decode(), reply[1], reply[2:]), repeatable=False)


def flights_since(keys: QueueKeys, earliest: int) -> Op[list[bytes]]:
    """Read which messages become visible at or after a time, in ms: their fields of `receipts`, a thousand at most."""
    return Op(("ZRANGEBYSCORE", keys.received, earliest, "+inf", "LIMIT", 0, 1000))


def receive_again(keys: QueueKeys, attempt: str, visible: float) -> Op[list[bytes]]:
    """Return the elements of an earlier receive, oldest first; none if they are not all in flight any more."""
    call = signatures.receive_again(keys, attempt=keys.attempt_of(dedup_digest(attempt)), visible=milliseconds(visible))
    return scripted(call)


def keep_received(keys: QueueKeys, attempt: str, visible: float, first: int, limit: int) -> Op[tuple[int, list[bytes]]]:
    """Keep messages of an attempt in flight; answers how many entries of its list it saw, and the names in flight."""
    call = signatures.keep_received(
        keys, attempt=keys.attempt_of(dedup_digest(attempt)), visible=milliseconds(visible), first=first, limit=limit
    )
    return scripted(call, tuple)


def attempt_length(keys: QueueKeys, attempt: str) -> Op[int]:
    return Op(("LLEN", keys.attempt_of(dedup_digest(attempt))))


def attempt_entries(keys: QueueKeys, attempt: str, first: int, after: int) -> Op[list[bytes]]:
    """Read the marks and names of an attempt, oldest first."""
    return Op(("LRANGE", keys.attempt_of(dedup_digest(attempt)), first, after - 1))


def forget_attempt(keys: QueueKeys, attempt: str) -> Op[int]:
    return Op(("UNLINK", keys.attempt_of(dedup_digest(attempt))))


def records(keys: QueueKeys, fields: Sequence[bytes]) -> Op[list[bytes | None]]:
    """Read the elements in flight under these ids, or names."""
    return Op(("HMGET", keys.receipts, *fields), lambda reply: [one and one[TURN:] for one in reply])


def waiting_count(keys: QueueKeys, group: str) -> Op[int]:
    """Read how many messages wait for a key."""
    return Op(("ZLEXCOUNT", keys.waiting, f"[{group}", f"({group}".encode() + b"\xff"))


def change_delay(keys: QueueKeys, changes: Sequence[tuple[str, int]]) -> Op[int]:
    """Let delayed messages, by their ids, be due at these ms since the epoch; answers how many are delayed."""
    pairs = (signatures.change_delay_change(id=identity, due=due) for identity, due in changes)
    return scripted(signatures.change_delay(keys, changes=pairs), int)


def return_due(keys: QueueKeys, limit: int) -> Op[tuple[int, int, list[bytes]]]:
    """Make due messages visible; answers how many, the ms until the next is due (-1: none is in flight), and keys.

    These are some of those whose first visible message comes before the ones in flight.
    """
    call = signatures.return_due(keys, limit=limit)
    return scripted(call, tuple)


def set_visibility(
    keys: QueueKeys, changes: Sequence[tuple[bytes, float, str]], late: bool = False, call: str | None = None
) -> Op[str]:
    """Set the seconds for which messages stay in flight from now on; answers a letter for each.

    A message is told by its name and, third, the group of its key. `call`: of `new_call`.
    """
    changed = (
        signatures.set_visibility_change(name=name, visible=milliseconds(visible), key_group=group)
        for name, visible, group in changes
    )
    setting = signatures.set_visibility(keys, late=late, changes=changed, call=call)
    return scripted(setting, as_text)


def delete_flying(keys: QueueKeys, names: Sequence[bytes], late: bool) -> Op[bool]:
    """Delete messages in flight by their names, all or none; False: `delete_received` must say why."""
    call = signatures.delete_flying(keys, late=late, names=names)
    return scripted(call, bool)


def delete_received(keys: QueueKeys, handles: Sequence[tuple[bytes, str]], late: bool) -> Op[str]:
    """Delete messages by their names and the groups of their keys; answers a letter for each."""
    named = (signatures.delete_received_handle(name=name, key_group=group) for name, group in handles)
    call = signatures.delete_received(keys, late=late, handles=named)
    return scripted(call, as_text)


def purge_received(keys: QueueKeys, limit: int, call: str | None = None) -> Op[int]:
    """Delete messages in flight; answers how many. `call`: of `new_call`."""
    return scripted(signatures.purge_received(keys, limit=limit, ids=(), call=call))


def cancel_received(keys: QueueKeys, identity: str, call: str) -> Op[int]:
    """Cancel a message in flight; answers 1 if it was there. `call`: as of `ops.cancel`."""
    return scripted(signatures.purge_received(keys, limit=1, ids=[identity], call=call))


def flying(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    """Read the element of a message in flight."""
    return Op(("HGET", keys.receipts, identity), lambda reply: reply and reply[TURN:])


def in_flight(keys: QueueKeys) -> Op[int]:
    return Op(("ZCARD", keys.received))


def next_of_key(keys: QueueKeys, group: bytes, count: int) -> Op[list[bytes]]:
    """Read the first messages that wait for a key: each behind its group and its turn."""
    return Op(("ZRANGEBYLEX", keys.waiting, b"[" + group, b"(" + group + b"\xff", "LIMIT", 0, count))
