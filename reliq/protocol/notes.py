"""Notes: what a feature keeps about queues in a key of its own, which no deletion of a queue reaches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps


@dataclass(frozen=True, slots=True)
class Notes:
    """Names that a feature notes, each with a queue; they go with the queue."""

    name: str  #: as `deletion.Deleted` counts them; empty: it does not
    read: Callable[[], Op[Mapping[str, str]]]  #: the queue of each name
    forget: Callable[[str, Sequence[str]], Op[Any]]  #: of a queue, names that it had; as far as they still are its
    #: Before a deletion: ends what is under way between the queue and others, which would be left with a part of it.
    settle: Callable[[QueueKeys], Steps[None]] | None = None
