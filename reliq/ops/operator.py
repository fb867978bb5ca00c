"""Ops for operators: redrive, discard, cancel, purge, and delayed messages that are to run now."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.partitions import Stray
from reliq.ops.request import Op, Record, scripted


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter and the element it becomes."""

    element: bytes
    id: str
    again: bytes
    member: str = ""  #: the member of the cycle that the message visits again


def redrive(keys: QueueKeys, revivals: Sequence[Revival], call: str | None = None) -> Op[list[int]]:
    """Move dead letters back into the queue; answers 1 for each that was. `call`: as of `cancel`."""
    return scripted(signatures.redrive(keys, letters=map(_revived, revivals), call=call))


def _revived(one: Revival) -> Record:
    return signatures.redrive_letter(element=one.element, id=one.id, member=one.member, again=one.again)


def discard(
    keys: QueueKeys,
    letters: Sequence[tuple[bytes, str, bytes]],
    counter: Literal["purged_dead", "trimmed", "forwarded"],
    call: str | None = None,
) -> Op[int]:
    """Remove dead letters, given as element, id and the reference to a body that is apart, empty without one.

    `call`: as of `cancel`.
    """
    discarding = signatures.discard(
        keys,
        call=call,
        counter=counter,
        letters=[
            signatures.discard_letter(element=element, id=identity, reference=reference)
            for element, identity, reference in letters
        ],
    )
    return scripted(discarding)


def cancel(keys: QueueKeys, identity: str, call: str | None = None) -> Op[bool]:
    """Remove a delayed message; `call`: of `new_call`, so that a repeated call has the answer of the first."""
    return scripted(signatures.cancel(keys, id=identity, call=call), bool)


class Purged(NamedTuple):
    removed: int
    more: bool  #: whether there may be more
    strays: list[Stray]  #: of those that it came across; it does not remove them


def purge(keys: QueueKeys, limit: int, call: str | None = None) -> Op[Purged]:
    """Delete ready and delayed messages, at most so many. `call`: as of `cancel`."""
    purging = signatures.purge(keys, limit=limit, call=call)
    return scripted(purging, lambda reply: Purged(reply[0], reply[1] == 1, [Stray(one) for one in reply[2:]]))


def hasten(keys: QueueKeys, ids: Collection[str]) -> Op[int]:
    """Make delayed messages due now; return how many of them are delayed."""
    return scripted(signatures.hasten(keys, ids=ids), int)
