"""A dead letter: a message together with the reason and the time of its death."""

from typing import Any

from reliq.model.element import Failure
from reliq.model.message import Message
from reliq.model.settings import MAX_TIME_MS

REASONS = ("max_failures", "max_deliveries", "expired", "rejected", "decode", "undecided")


class DeadLetter(Message):
    """A message that is not run again unless it is redriven."""

    __slots__ = ("died_at", "score")

    died_at: int  #: ms since the epoch, the Redis server's clock
    score: str

    @classmethod
    def read(cls, queue: str, element: bytes, score: bytes) -> "DeadLetter":
        letter = cls.decode(queue, element)
        letter.score = score.decode()
        letter.died_at = int(min(max(0.0, float(score)), MAX_TIME_MS))  # a score written by hand may be any number
        return letter

    @property
    def first_error(self) -> Failure | None:
        return self.errors[0] if self.errors else None

    @property
    def last_error(self) -> Failure | None:
        return self.errors[-1] if self.errors else None

    def summary(self) -> dict[str, Any]:
        """Return what a program or a page shows of the dead letter, without its body."""
        last = self.last_error
        return {
            "id": self.id,
            "queue": self.queue,
            "routing_key": self.routing_key,
            "reason": self.reason,
            "died_at": self.died_at,
            "enqueued_at": self.enqueued_at,
            "failures": self.failures,
            "deliveries": self.deliveries,
            "headers": self.headers,
            "size": len(self.body),
            "error_class": last.error_class if last else "",
            "error": last.text if last else "",
        }
