"""Ops of the monitor: promote, and the reclaim script for when Redis refuses the transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reliq.errors import ForeignKey
from reliq.model.keys import QueueKeys
from reliq.ops.request import Argument, Op, as_text, script_named, scripted


def promote(keys: QueueKeys, limit: int) -> Op[tuple[int, int]]:
    """Promote due messages; the reply is how many, and in how many ms the next one is due (-1: none)."""
    return scripted("promote", (*keys.places, keys.delayed, keys.index), (limit,), tuple)


@dataclass(frozen=True, slots=True)
class Return:
    """One message that the monitor takes back from a consumer with an expired lease."""

    element: bytes
    counter: Literal["reclaimed", "dead:max_deliveries", "dead:decode"]
    id: str
    again: bytes
    group: str = ""  #: digest of the message's key, which a dead letter sets free
    charged: bool = False  #: whether the delivery counts


def reclaim_when_full(keys: QueueKeys, consumer: str, deadline: str, returns: Sequence[Return]) -> Op[int]:
    names = (*keys.places, keys.processing(consumer), keys.lease(consumer), keys.dead, keys.index)
    arguments: list[Argument] = [deadline]
    for one in returns:
        arguments += (one.element, one.counter, one.id, one.again)
    return scripted("reclaim", names, arguments)


def type_of(key: str) -> Op[str]:
    """Read the type of a key, "none" if it does not exist."""
    return Op(("TYPE", key), as_text)


def check_type(key: str, kind: str, expected: str) -> None:
    """Raise ForeignKey if a key exists with another type."""
    if kind not in ("none", expected):
        raise ForeignKey(
            f"Redis key {key!r} is a {kind}, reliq needs a {expected} there: another application shares the prefix "
            "reliq:. Rename or delete that key; nothing was changed"
        )


def advance_within(keys: QueueKeys, element: bytes) -> Op[int]:
    """Advance the order inside a Transaction. It sends the script's source: an unknown digest would fail too late."""
    return Op(("EVAL", script_named("advance").source, len(keys.places), *keys.places, element))
