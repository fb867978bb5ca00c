"""What a consumer of a worker says about itself with its heartbeats, for people who look."""

import time

from reliq.model.worker import Doing, encoded
from reliq.runtime.process import this_process


class Description:
    """The description of one consumer, as Redis has it."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._text = b""
        self._handled = 0
        self._at = time.monotonic()

    def changed(self, handled: int, running: str, since: int, paused: bool = False) -> bytes | None:
        """Return the new description, None if it is as before; the arguments are those of Doing."""
        now = time.monotonic()
        rate = (handled - self._handled) / max(now - self._at, 0.001)
        self._handled, self._at = handled, now
        former, doing = self._text, Doing(handled, float(f"{rate:.3g}"), running, since, paused)
        self._text = encoded(this_process(), self._lease, doing)
        return None if former == self._text else self._text
