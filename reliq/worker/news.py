"""What a consumer of a worker tells about itself with its heartbeats: for people who look, and only what is new."""

import time

from reliq.model.worker import Doing, encoded
from reliq.runtime.process import this_process


class News:
    """The news of one consumer."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._told = b""
        self._handled = 0
        self._at = time.monotonic()

    def text(self, handled: int, running: str, since: int, paused: bool = False) -> bytes | None:
        """Return what Redis is to know, None if it knows it; the arguments are those of Doing."""
        now = time.monotonic()
        rate = (handled - self._handled) / max(now - self._at, 0.001)
        self._handled, self._at = handled, now
        told = self._told
        doing = Doing(handled, float(f"{rate:.3g}"), running, since, paused)
        self._told = encoded(this_process(), self._lease, doing)
        return None if told == self._told else self._told
