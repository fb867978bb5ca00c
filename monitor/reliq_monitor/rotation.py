"""Rotation: a duty works on some of its items in one turn, for a short time, and on the others in the next ones."""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

A_TURN = 0.1  #: seconds after which a turn begins no further item: due messages wait meanwhile, and the monitor's beats


class Rotation(Generic[T]):
    """Whose turn it is. `unfinished`: the latest turn has left some items to the next one."""

    def __init__(self, name: Callable[[T], Hashable]) -> None:
        """`name` returns what an item is known by from one turn to the next."""
        self.unfinished = False
        self._name = name
        self._latest: Hashable = None

    def turn(self, items: Sequence[T]) -> Iterator[T]:
        """Yield items, beginning behind the one that came last in the turn before, as long as the turn lasts."""
        first = next((place for place, one in enumerate(items, 1) if self._name(one) == self._latest), 0)
        until, self.unfinished = time.monotonic() + A_TURN, False
        for place, one in enumerate([*items[first:], *items[:first]], 1):
            self._latest = self._name(one)
            yield one
            if time.monotonic() >= until and place < len(items):
                self.unfinished = True
                return
