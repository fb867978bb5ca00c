"""Ops for operators: redrive, discard, cancel and purge."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reliq.model.keys import QueueKeys
from reliq.ops.request import Op, scripted


@dataclass(frozen=True, slots=True)
class Revival:
    """A dead letter and the element it becomes."""

    element: bytes
    id: str
    again: bytes
    member: str = ""  #: the member of the cycle that the message visits again


def redrive(keys: QueueKeys, revivals: Sequence[Revival]) -> Op[list[int]]:
    arguments = [part for one in revivals for part in (one.element, one.id, one.member, one.again)]
    return scripted("redrive", (*keys.places, keys.dead, keys.index), arguments)


def discard(
    keys: QueueKeys, letters: Sequence[tuple[bytes, str, bytes]], counter: Literal["purged_dead", "trimmed"]
) -> Op[int]:
    """Remove dead letters, given as element, id and the reference to a body that is apart, empty without one."""
    arguments = [counter, *(part for letter in letters for part in letter)]
    return scripted("discard", (keys.dead, keys.counters, keys.index, keys.bodies), arguments)


def cancel(keys: QueueKeys, identity: str) -> Op[bool]:
    return scripted("cancel", (*keys.places, keys.delayed, keys.index), (identity,), bool)


def purge(keys: QueueKeys, limit: int) -> Op[int]:
    return scripted("purge", (*keys.places, keys.delayed, keys.index), (limit,))
