"""Routing: columns of which the driver has to know what their values stand for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from reliq.ops import Steps


class Routing(Protocol):
    """The queues of each value, as the driver read them; the tasks get a copy, so a repeated one decides the same."""

    @property
    def queues(self) -> Collection[str]:
        """All queues that rows may go to."""

    def of(self, value: str) -> tuple[str, ...]:
        """Return the queues for a row with this value; raises InvalidName, Unroutable."""


@dataclass(frozen=True)
class Column:
    """A column that routes rows."""

    name: str
    read: Callable[[bool], Steps[Routing]]  #: with the option `mandatory`
