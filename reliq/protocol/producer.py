"""Producer sessions: the identity by which the enqueue script recognizes a repeated call."""

import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from reliq import forks, ops
from reliq.model.keys import QueueKeys
from reliq.model.middleware import Middleware, Sending
from reliq.ops import Steps

T = TypeVar("T")


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


def stored(
    queues: Sequence[QueueKeys],
    bodies: Sequence[ops.StoredBody],
    session: ProducerSession,
    enqueue: ops.Op[T],
    before: Sequence[ops.Op[Any]] = (),
) -> Steps[tuple[list[Any], T]]:
    """Run the op that enqueues messages, in one step with storing those of their bodies that are apart.

    The answers are those of the ops `before` it, which share its round trip if there are no bodies, and its own.
    """
    answers: list[Any] = []
    if bodies:
        if before:
            answers = yield list(before)
        *_, answer = yield ops.with_bodies(queues, bodies, session.producer, session.sequence, enqueue)
    elif before:
        *answers, answer = yield [*before, enqueue]
    else:
        answer = yield enqueue
    return answers, answer


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
        self.middleware: Sequence[Middleware[Sending]] = ()  #: around each send; the first is the outermost
        self.versions: Mapping[str, int] = {}  #: by queue: the version of the bodies that this application sends
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
