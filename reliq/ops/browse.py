"""Ops that read lists and sorted sets without changing them."""

from collections.abc import Sequence
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.ops.request import Argument, Op

Scored = list[tuple[bytes, bytes]]  #: elements, each with its score as formatted by Redis


def _read_scored(reply: list[bytes]) -> Scored:
    return list(zip(reply[::2], reply[1::2], strict=True))


def by_score(zset: str, low: Argument, high: Argument, limit: int, skip: int = 0) -> Op[Scored]:
    """Read the elements with a score in the range, lowest first."""
    return Op(("ZRANGEBYSCORE", zset, low, high, "WITHSCORES", "LIMIT", skip, limit), _read_scored)


def by_score_descending(zset: str, high: Argument, low: Argument, limit: int, skip: int = 0) -> Op[Scored]:
    """Read the elements with a score in the range, highest first."""
    return Op(("ZREVRANGEBYSCORE", zset, high, low, "WITHSCORES", "LIMIT", skip, limit), _read_scored)


def by_rank(zset: str, first: int, count: int = 1) -> Op[Scored]:
    """Read `count` elements from rank `first` on; the lowest score has rank 0."""
    return Op(("ZRANGE", zset, first, first + count - 1, "WITHSCORES"), _read_scored)


def at_score(zset: str, score: bytes) -> Op[list[bytes]]:
    return Op(("ZRANGEBYSCORE", zset, score, score))


def up_to(zset: str, high: int, limit: int) -> Op[list[bytes]]:
    """Read the members with a score up to `high`, lowest first."""
    return Op(("ZRANGEBYSCORE", zset, "-inf", high, "LIMIT", 0, limit))


def first_names(zset: str, count: int) -> Op[list[str]]:
    """Read the `count` names with the lowest scores."""
    return Op(("ZRANGE", zset, 0, count - 1), as_names)


def as_names(reply: Sequence[bytes]) -> list[str]:
    return [one.decode() for one in reply]


def count_between(zset: str, low: Argument, high: Argument) -> Op[int]:
    return Op(("ZCOUNT", zset, low, high))


def zset_size(zset: str) -> Op[int]:
    return Op(("ZCARD", zset))


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


def lengths(keys: QueueKeys) -> list[Op[Any]]:
    """Read the numbers that count for max_length: messages that are ready, wait for their key or are delayed."""
    lists = (keys.messages, keys.high, keys.low, keys.next_round)
    return [*map(list_length, lists), *map(zset_size, (keys.delayed, keys.waiting))]


def indexed_score(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    """Read the score of a message in `dead` or `delayed` by its id."""
    return Op(("HGET", keys.index, identity))
