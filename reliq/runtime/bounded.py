"""What a process knows of queues by their names, of which there may be any number."""

from contextlib import suppress
from typing import TypeVar

V = TypeVar("V")

MOST = 10_000  #: names; an entry of a queue has up to 10 KB


class Bounded(dict[str, V]):
    """Values by name. A further name takes the place of the one that came first: what it stands for is made again."""

    def __setitem__(self, name: str, value: V) -> None:
        if len(self) >= MOST and name not in self:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread was faster
                del self[next(iter(self))]
        super().__setitem__(name, value)
