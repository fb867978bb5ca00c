"""Progress in the log: a line every few seconds, from a Python worker of Spark, where logging is not configured."""

import logging
import sys
import time

_EVERY = 5.0  #: seconds

log = logging.getLogger("reliq.spark")


class Watched:
    """Logs how far a piece of work is, at most every five seconds; says nothing about short work."""

    def __init__(self, text: str) -> None:
        """`text`: a format with the number of messages and, if they are counted, of megabytes."""
        self._text = text
        self._next = time.monotonic() + _EVERY

    def note(self, *numbers: float) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            _show_progress()
            log.info(self._text, *numbers)


def _show_progress() -> None:
    """Let INFO through to standard error, unless the application has decided otherwise."""
    if log.level == logging.NOTSET and not log.hasHandlers():
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.setLevel(logging.INFO)
