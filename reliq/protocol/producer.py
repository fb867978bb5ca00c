"""The producer's identity: how the enqueue script knows a call that it has already carried out."""

import secrets
import time
from collections import deque

from reliq import forks


class ProducerSession:
    """One producer as Redis knows it: an id, and the number of its latest call.

    A lane has one call under way at a time. Two at once could arrive in the wrong order, and the earlier one would
    then be taken for a repeat and be lost.
    """

    __slots__ = ("mark", "producer", "sequence")

    def __init__(self) -> None:
        self.producer = secrets.token_hex(8)
        self.sequence = 0
        self.mark = forks.mark()


class Clock:
    """The Redis server's clock as far as a producer knows it: its own, and by how much that is behind."""

    def __init__(self) -> None:
        self._ahead: int | None = None  #: ms

    @property
    def known(self) -> bool:
        return self._ahead is not None

    def now(self) -> int:
        """Ms since the epoch."""
        return time.time_ns() // 1_000_000 + (self._ahead or 0)

    def note(self, server: int) -> None:
        """The server has just said its time, in ms."""
        self._ahead = server - time.time_ns() // 1_000_000


class ProducerPool:
    """As many lanes as calls that were ever under way at once; each is used again by a later call."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._free: deque[ProducerSession] = deque()

    def take(self) -> ProducerSession:
        while True:
            try:
                lane = self._free.pop()
            except IndexError:
                lane = ProducerSession()
            if lane.mark == forks.mark():  # else it belongs to the process that forked this one
                lane.sequence += 1
                return lane

    def give_back(self, lane: ProducerSession) -> None:
        self._free.append(lane)
