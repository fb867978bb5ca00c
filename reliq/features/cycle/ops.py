"""Ops of the cycle: add and remove its members. Their visits are ordinary claims and moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reliq.features.cycle import signatures
from reliq.model.keys import QueueKeys
from reliq.ops.request import Op, Record, readable, scripted


@dataclass(frozen=True, slots=True)
class Member:
    """A member that enters a cycle, and the message that circulates for it."""

    member: str
    group: str
    id: str
    element: bytes


@dataclass(frozen=True, slots=True)
class Entered:
    """The reply of the cycle_add script. `rest`: 1 or 0 for each member or, if full, length, max_length and unit."""

    status: Literal["ok", "full"]
    now: int
    rest: list[Any]


def cycle_add(keys: QueueKeys, members: Sequence[Member], producer: str = "", sequence: int = 0) -> Op[Entered]:
    """Add members to the cycle.

    With a producer's sequence, a repeated or late call does not bring back removed members.
    """
    call = signatures.cycle_add(keys, producer=producer, sequence=sequence, members=map(_member, members))
    return scripted(call, lambda reply: Entered(reply[0].decode(), reply[1], [readable(one) for one in reply[2:]]))


def _member(one: Member) -> Record:
    return signatures.cycle_add_member(member=one.member, key_group=one.group, id=one.id, element=one.element)


def cycle_remove(keys: QueueKeys, groups: Sequence[str], call: str | None = None) -> Op[list[int]]:
    return scripted(signatures.cycle_remove(keys, groups=groups, call=call))
