"""Log lines of an outage of Redis: one when it begins, reminders while it lasts, and one when it is over."""

import logging
import time

_AGAIN = 30.0  #: seconds between two reminders


class OutageLog:
    """The log of one loop's failing calls, without a line for each of them."""

    def __init__(self, log: logging.Logger, who: str) -> None:
        self._log = log
        self._who = who
        self._since: float | None = None
        self._said_at = 0.0

    def failed(self, error: Exception) -> None:
        """Note that a call failed."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._say(now, f"{self._who}: {error}")
        elif now - self._said_at > _AGAIN:
            self._say(now, f"{self._who}: for {now - self._since:.0f} s: {error}")

    def over(self) -> None:
        """Note that a call succeeded."""
        if self._since is not None:
            self._log.warning("%s: works again after %.1f s", self._who, time.monotonic() - self._since)
            self._since = None

    def _say(self, now: float, text: str) -> None:
        self._said_at = now
        self._log.warning("%s", text)
