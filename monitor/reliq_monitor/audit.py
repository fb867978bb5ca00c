"""The audit: every message ever enqueued is here or counted as gone, see `Stats.missing`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliq.contract.counters import GONE
from reliq.model.stats import STATES, Stats
from reliq.ops import Steps
from reliq.ops.schema import Counter
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import read_queues


@dataclass(frozen=True, slots=True)
class Book:
    """The audit of one queue."""

    queue: str
    enqueued: int
    gone: dict[str, int]
    here: dict[str, int]
    missing: int | None  #: None: not all of it answered, or the set of consumers kept changing during the reading
    unseen: int = 0  #: as of model.stats

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.unseen:
            return f"not sure: {self.unseen} of its partitions did not answer"
        if self.missing is None:
            return "not sure: its consumers keep changing, ask again"
        if self.missing == 0:
            return "balanced"
        return f"{self.missing} MISSING" if self.missing > 0 else f"{-self.missing} that were never enqueued"

    def summary(self) -> dict[str, Any]:
        """Return the audit as a dictionary, for programs."""
        return {
            "queue": self.queue, "enqueued": self.enqueued, "gone": self.gone, "here": self.here,
            "missing": self.missing,
        }  # fmt: skip

    def line(self, width: int = 30) -> str:
        """Return the audit as one line of text; `width`: of the queue's name."""
        gone, here = sum(self.gone.values()), sum(self.here.values())
        return f"{self.queue:{width}} {self.enqueued:>11} enqueued = {gone} gone + {here} here: {self.verdict}"


def audit(names: Sequence[str] = ()) -> Steps[list[Book]]:
    """Audit these queues, or all queues."""
    wanted = names or (yield from every_queue())
    readings = yield from read_queues(wanted)
    return [_book(reading) for reading in readings]


def balanced(books: Sequence[Book]) -> bool:
    """Whether no message is known to be missing or present twice."""
    return not any(book.missing for book in books)


def _book(reading: Stats) -> Book:
    return Book(
        queue=reading.queue,
        enqueued=reading.counters.get(Counter.ENQUEUED, 0),
        gone={name: reading.counters.get(name, 0) for name in GONE},
        here={state: getattr(reading, state) for state in STATES},
        missing=reading.missing if reading.exact else None,
        unseen=reading.unseen,
    )
