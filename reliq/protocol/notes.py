"""Notes: what a feature keeps about queues in a key of its own, which no deletion of a queue reaches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reliq.ops import Op


@dataclass(frozen=True, slots=True)
class Notes:
    """Names that a feature notes, each with a queue; they go with the queue."""

    name: str  #: as `deletion.Deleted` counts them; empty: it does not
    read: Callable[[], Op[Mapping[str, str]]]  #: the queue of each name
    forget: Callable[[Sequence[str]], Op[int]]
