"""Sequences in parts: pieces for calls that keep Redis busy for a short time only, and groups by a key."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def pieces(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in their order, up to `most` at a time."""
    return (items[start : start + most] for start in range(0, len(items), most))


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the second ones of these pairs by the first ones, all in their order."""
    groups: dict[K, list[T]] = {}
    for key, one in pairs:
        groups.setdefault(key, []).append(one)
    return groups
