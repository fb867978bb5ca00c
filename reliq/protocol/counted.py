"""Counted: what a feature counts in a queue, and still needs when the queue is deleted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps


@dataclass(frozen=True, slots=True)
class Counted:
    """How counts outlive their queue, or a home that is forgotten."""

    note: Callable[[QueueKeys], Steps[Any]]  #: note elsewhere that this queue has counts; what `kept` needs
    #: while the queue is watched: what stores the counts that stay; None if there are others than those noted
    kept: Callable[[QueueKeys, Any], Steps[Sequence[Op[Any]] | None]]
