"""Trials: how many redelivered messages run at the same time in a process.

Each of them was held by a process that died, and one may have killed it. If a process dies while one of them runs
alone, the monitor charges that one; with several it could not tell which. So they run one at a time. After some
seconds without a death more and more run at a time: otherwise the messages of a process with a thousand slow handlers
would take a thousand runs. If the process dies then, none is charged, and the monitor halves how many may run together
with each of them (`Message.together`), so that a message that kills processes soon runs alone.
"""

import threading
import time

from reliq.model.message import Message

ALONE = 1
_ANY = 2**30
_FORGOTTEN = 5.0  #: seconds without any after which the next one runs alone again


class Trials:
    """The redelivered messages that run in this process. Thread-safe.

    `caution`: seconds without harm after which more than one may run.
    """

    def __init__(self, caution: float = 5.0) -> None:
        self._caution = caution
        self._lock = threading.Lock()
        self._running: dict[bytes, int] = {}  #: by element: how many may run at the same time
        self._window = ALONE
        self._began_at = self._ended_at = 0.0

    @property
    def running(self) -> bool:
        """Whether any runs."""
        return bool(self._running)

    def begin(self, message: Message) -> int:
        """Return how many may run together, a power of two, or ALONE, if this one may start now; else 0."""
        most = ALONE if message.deliveries else message.together or _ANY
        with self._lock:
            now = time.monotonic()
            if not self._running and now - self._ended_at > _FORGOTTEN:
                self._window, self._began_at = ALONE, now
            self._window = min(self._window, most)  # so that it has its turn
            count = len(self._running) + 1
            if count > min((self._window, *self._running.values())):
                return 0
            self._running[message.element] = most
            return ALONE if self._window == ALONE else max(2, 2 ** (count - 1).bit_length())

    def end(self, element: bytes) -> None:
        """Note that one has ended and is settled."""
        with self._lock:
            del self._running[element]
            self._ended_at = time.monotonic()
            if self._ended_at - self._began_at > self._caution:
                self._window += 1
