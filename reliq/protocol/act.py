"""Act: what handlers ask of a feature for their message, while they run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Act:
    """What a message's method has been asked, and how the consumer of the message does it."""

    asked: tuple[type, ...]
    #: gets the consumer, the message and what was asked; returns the answer, in async handlers one to be awaited
    begin: Callable[..., Any]
