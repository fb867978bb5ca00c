"""Known: what a monitor has read of keys and need not read again, because the server says when they change.

Most queues have nothing to do. Each of their keys is read once; then the server's notices (`transport.notices`) tell
which ones are to be read again. A notice that never comes, from a proxy or a server with a defect, costs at most
`SLOW_LOOK`: nothing is known for longer. Where there are no notices, nothing is known.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from reliq.model.keys import queue_of

SLOW_LOOK = 30.0  #: seconds after which a key is read again, whatever the server says
_PARTS = 30  #: `prune` forgets about one of so many parts of the answers at a time


class Known:
    """Answers by key and by what was asked about it, in the order in which the keys were first read."""

    def __init__(
        self, notified: Callable[[], bool] = lambda: False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`notified`: whether the server tells of changes."""
        self._notified = notified
        self._clock = clock
        self._answers: dict[str, tuple[float, dict[str, Any]]] = {}
        self._pruned_at = 0.0

    @property
    def is_notified(self) -> bool:
        """Whether the server tells of changes, so that what is noted is known."""
        return self._notified()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str, what: str = "exists") -> Any:
        """Return what was noted about a key, None if it has to be read."""
        known = self._answers.get(key)
        return None if known is None else known[1].get(what)

    def of(self, keys: Iterable[str]) -> list[Any]:
        """Return for each key whether it exists, None if it has to be read: of thousands, in a third of the time."""
        return [None if known is None else known[1].get("exists") for known in map(self._answers.get, keys)]

    def note(self, key: str, answer: Any, what: str = "exists") -> None:
        """Note what was just read of a key."""
        if self._notified():
            known = self._answers.get(key)
            if known is None:
                known = self._answers[key] = (self._clock(), {})
            known[1][what] = answer

    def changed(self, keys: Iterable[str] | None) -> None:
        """Forget these keys; None: all of them."""
        if keys is None:
            self._answers.clear()
            return
        for key in keys:
            self._answers.pop(key, None)

    def leave(self, queues: Collection[str]) -> None:
        """Forget the keys of queues that are looked after elsewhere: the server of their slot may be another one."""
        if queues:
            for key in [key for key in self._answers if queue_of(key) in queues]:
                del self._answers[key]

    def prune(self) -> None:
        """Forget what was known for too long, a part at a time."""
        now = self._clock()
        if now - self._pruned_at < SLOW_LOOK / _PARTS:
            return
        self._pruned_at = now
        oldest: list[str] = []
        for key, (noted_at, _) in self._answers.items():
            if now - noted_at < SLOW_LOOK or len(oldest) > math.ceil(len(self._answers) / _PARTS * 2):
                break
            oldest.append(key)
        for key in oldest:
            del self._answers[key]
