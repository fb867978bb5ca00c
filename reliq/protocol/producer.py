"""Producer sessions: the identity by which the enqueue script recognizes a repeated call."""

import secrets
import time
from collections import deque

from reliq import forks


class ProducerSession:
    """One producer as known to Redis: an id and the number of its latest call.

    A session has one call under way at a time. Two at once could arrive in the wrong order; the earlier one would then
    be taken for a repeated call and be lost.
    """

    __slots__ = ("mark", "producer", "sequence")

    def __init__(self) -> None:
        self.producer = secrets.token_hex(8)
        self.sequence = 0
        self.mark = forks.mark()


class Clock:
    """An estimate of the Redis server's clock: this machine's clock and the latest known difference."""

    def __init__(self) -> None:
        self._ahead: int | None = None  #: ms

    @property
    def known(self) -> bool:
        return self._ahead is not None

    def now(self) -> int:
        """Return the estimated time of the server, ms since the epoch."""
        return time.time_ns() // 1_000_000 + (self._ahead or 0)

    def note(self, server: int) -> None:
        """Note the time, in ms, that the server has just reported."""
        self._ahead = server - time.time_ns() // 1_000_000


class ProducerPool:
    """The sessions of one application: as many as calls were ever under way at once; each is reused by later calls."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._free: deque[ProducerSession] = deque()

    def take(self) -> ProducerSession:
        while True:
            try:
                session = self._free.pop()
            except IndexError:
                session = ProducerSession()
            if session.mark == forks.mark():  # else it belongs to the parent process
                session.sequence += 1
                return session

    def give_back(self, session: ProducerSession) -> None:
        self._free.append(session)
