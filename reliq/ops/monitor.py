"""What the monitor does: promote, and reclaim where its transaction is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reliq.errors import ForeignKey
from reliq.model.keys import QueueKeys
from reliq.ops.request import Argument, Op, as_text, script_named, scripted


def promote(keys: QueueKeys, limit: int) -> Op[tuple[int, int]]:
    """Answers how many were promoted, and in how many ms the next is due (-1: none)."""
    return scripted("promote", (*keys.places, keys.delayed, keys.index), (limit,), tuple)


@dataclass(frozen=True, slots=True)
class Return:
    """One message that the monitor takes back from a consumer whose lease is over."""

    element: bytes
    counter: Literal["reclaimed", "dead:max_deliveries", "dead:decode"]
    id: str
    again: bytes
    group: str = ""  #: of its key, which is free once it is dead
    charged: bool = False  #: with a delivery


def reclaim_when_full(keys: QueueKeys, consumer: str, deadline: str, returns: Sequence[Return]) -> Op[int]:
    names = (*keys.places, keys.processing(consumer), keys.lease(consumer), keys.dead, keys.index)
    arguments: list[Argument] = [deadline]
    for one in returns:
        arguments += (one.element, one.counter, one.id, one.again)
    return scripted("reclaim", names, arguments)


def type_of(key: str) -> Op[str]:
    """The type of a key, "none" where it does not exist."""
    return Op(("TYPE", key), as_text)


def check_type(key: str, kind: str, expected: str) -> None:
    """Raise ForeignKey where a key exists and has another type."""
    if kind not in ("none", expected):
        raise ForeignKey(
            f"Redis key {key!r} is a {kind}, reliq needs a {expected} there: another application shares the prefix "
            "reliq:. Rename or delete that key; nothing was changed"
        )


def advance_within(keys: QueueKeys, element: bytes) -> Op[int]:
    """Inside a Transaction, where a script must bring its source along: an unknown one would be found out too late."""
    return Op(("EVAL", script_named("advance").source, len(keys.places), *keys.places, element))
