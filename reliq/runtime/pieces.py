"""Long sequences in pieces, for calls that keep Redis busy for a short time only."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def pieces(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in their order, up to `most` at a time."""
    return (items[start : start + most] for start in range(0, len(items), most))
