"""Progress in the log: a line every few seconds, from a Python worker of Spark, where logging is not configured."""

import logging
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_EVERY = 5.0  #: seconds
_MEGABYTE = 1_000_000

log = logging.getLogger("reliq.spark")


class Watched:
    """Logs how far a piece of work is, at most every five seconds; says nothing about short work."""

    def __init__(self, text: str) -> None:
        """`text`: a format for the values that are noted."""
        self._text = text
        self._next = time.monotonic() + _EVERY

    def note(self, *values: object) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            _show_progress()
            log.info(self._text, *values)


def noted(batches: Iterator["RecordBatch"], work: str) -> Iterator["RecordBatch"]:
    """Log how many rows of a piece of work have come in, whenever Spark hands over a batch of them."""
    watched, rows, size = Watched(f"{work}: %d rows have come in%s"), 0, 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        watched.note(rows, f", {size // _MEGABYTE} MB" if size >= _MEGABYTE else "")
        yield batch


def _show_progress() -> None:
    """Let INFO through to standard error, unless the application has decided otherwise."""
    if log.level == logging.NOTSET and not log.hasHandlers():
        log.addHandler(logging.StreamHandler(sys.stderr))
        log.setLevel(logging.INFO)
