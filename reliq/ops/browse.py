"""Ops that read lists and sorted sets without changing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse
from reliq.ops import signatures
from reliq.ops.request import Argument, Op, scripted

Scored = list[tuple[bytes, bytes]]  #: elements, each with its score as formatted by Redis


def _read_scored(reply: list[bytes]) -> Scored:
    return list(zip(reply[::2], reply[1::2], strict=True))


STEP_BYTES = 1024 * 1024  #: of elements that a script reads in one call, or one larger element
GROUP_AND_TURN = 32  #: bytes before the element in a member of `waiting`
_WHOLE = -1  #: in place of the bytes of a body that are shown: all of it


@dataclass(frozen=True, slots=True)
class Browsed:
    """The reply of the browse script."""

    found: list[Glimpse]
    more: bool  #: whether there are more messages with these scores


def browse(
    zset: str,
    order: Literal["up", "down"],
    low: Argument,
    high: Argument,
    limit: int,
    skip: int = 0,
    shown: int | None = None,
) -> Op[Browsed]:
    """Read messages with a score in the range, by score, after the first `skip`.

    `shown`: the bytes of each body to read; None: all of it. The reply may have fewer than `limit`: it ends with the
    message at which 1 MiB of elements is read.
    """
    call = signatures.browse(
        zset=zset,
        order=order,
        low=low,
        high=high,
        skip=skip,
        limit=limit,
        shown=_WHOLE if shown is None else shown,
        most_bytes=STEP_BYTES,
    )
    return scripted(call, _read_browsed)


def _read_browsed(reply: list[Any]) -> Browsed:
    more, *rest = reply
    rows = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return Browsed([Glimpse(part, size, score) for score, size, part in rows], bool(more))


def find(keys: QueueKeys, zset: str, identity: str, skip: int, shown: int | None) -> Op[Glimpse | int | None]:
    """Read the message with this id; None if there is none; a number: search again, with this `skip`."""
    size = _WHOLE if shown is None else shown
    call = signatures.find(keys, zset=zset, id=identity, skip=skip, shown=size, most_bytes=STEP_BYTES)
    return scripted(call, _read_found)


def _read_found(reply: Any) -> Glimpse | int | None:
    if not isinstance(reply, list):
        return reply  # type: ignore[no-any-return]
    score, size, part = reply
    return Glimpse(part, size, score)


def upcoming(key: str, skip: int, limit: int, shown: int) -> Op[list[Glimpse]]:
    """Read the ready messages that are taken next, after the first `skip`; may be fewer than `limit`, as in browse."""
    call = signatures.upcoming(list=key, skip=skip, limit=limit, shown=shown, most_bytes=STEP_BYTES)
    return scripted(call, _read_upcoming)


def _read_upcoming(reply: list[Any]) -> list[Glimpse]:
    return [Glimpse(part, size) for size, part in zip(reply[::2], reply[1::2], strict=True)]


def starts(keys: QueueKeys, references: Sequence[bytes], shown: int) -> Op[list[bytes | None]]:
    """Read up to `shown` bytes of bodies that are apart from their elements; None for one that is not there."""
    return scripted(signatures.starts(keys, shown=shown, references=references), list)


def by_score(zset: str, low: Argument, high: Argument, limit: int) -> Op[Scored]:
    """Read the elements with a score in the range, lowest first."""
    return Op(("ZRANGEBYSCORE", zset, low, high, "WITHSCORES", "LIMIT", 0, limit), _read_scored)


def up_to(zset: str, high: int, limit: int) -> Op[list[bytes]]:
    """Read the members with a score up to `high`, lowest first."""
    return Op(("ZRANGEBYSCORE", zset, "-inf", high, "LIMIT", 0, limit))


def first_names(zset: str, count: int) -> Op[list[str]]:
    """Read the `count` names with the lowest scores."""
    return Op(("ZRANGE", zset, 0, count - 1), as_names)


def as_names(reply: Sequence[bytes]) -> list[str]:
    return [one.decode() for one in reply]


def zset_size(zset: str) -> Op[int]:
    return Op(("ZCARD", zset))


def hash_size(name: str) -> Op[int]:
    return Op(("HLEN", name))


def list_length(name: str) -> Op[int]:
    return Op(("LLEN", name))


def from_tail(name: str, first: int, after: int) -> Op[list[bytes]]:
    """Read list positions `first` up to before `after`, counted from the tail; nearest the head first."""
    return Op(("LRANGE", name, -after, -first - 1))


def whole_list(name: str) -> Op[list[bytes]]:
    return Op(("LRANGE", name, 0, -1))


def whole_zset(name: str) -> Op[list[bytes]]:
    return Op(("ZRANGE", name, 0, -1))


def bytes_used(key: str, samples: int | None = None) -> Op[int | None]:
    """Read the memory that Redis uses for a key, estimated from `samples` elements; None if it does not exist."""
    return Op(("MEMORY", "USAGE", key) if samples is None else ("MEMORY", "USAGE", key, "SAMPLES", samples))


def waiting_at(keys: QueueKeys, rank: int) -> Op[list[bytes]]:
    """Read the member of `waiting` with a rank, in a list; the list is empty if there is none."""
    return Op(("ZRANGE", keys.waiting, rank, rank))


def waiting_between(keys: QueueKeys, low: bytes, high: bytes, limit: int) -> Op[list[bytes]]:
    """Read members of `waiting` between two bounds of ZRANGEBYLEX, the least first."""
    return Op(("ZRANGEBYLEX", keys.waiting, low, high, "LIMIT", 0, limit))


def waiting_element(member: bytes) -> bytes:
    """Return the element in a member of `waiting`."""
    return member[GROUP_AND_TURN:]


def lengths(keys: QueueKeys) -> list[Op[Any]]:
    """Read the numbers that count for max_length: messages that are ready, wait for their key or are delayed."""
    return [*ready_lengths(keys), zset_size(keys.delayed)]


def ready_lists(keys: QueueKeys) -> tuple[str, ...]:
    """Return the lists of ready messages."""
    return (keys.messages, keys.high, keys.low, keys.next_round)


def ready_lengths(keys: QueueKeys) -> list[Op[int]]:
    """Read how many messages each list of ready ones has, and how many wait for their key."""
    return [*map(list_length, ready_lists(keys)), zset_size(keys.waiting)]
