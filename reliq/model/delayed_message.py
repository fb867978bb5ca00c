"""A delayed message: when it is due and, if it waits for a retry, the error of its last run."""

import math
from typing import Any

from reliq.model.element import Failure, Undecodable
from reliq.model.message import Message, wrapped

LATEST_MS = 2**53  #: ms; a larger score was written by another program


class DelayedMessage(Message):
    """A message that waits until it is due."""

    __slots__ = ("due_at", "readable", "score")

    due_at: int  #: ms since the epoch, the Redis server's clock
    readable: bool  #: False if its bytes do not decode as a message of this version: `body` then holds those bytes
    score: str

    @classmethod
    def read(cls, queue: str, element: bytes, score: bytes) -> "DelayedMessage":
        """Read an element of the delayed set together with its score."""
        try:
            message = cls.decode(queue, element)
            message.readable = True
        except Undecodable:  # written by another program, or by a newer version
            message = cls.decode(queue, wrapped(element)[1])
            message.readable = False
        message.score = score.decode()
        due = float(score)
        message.due_at = int(due) if math.isfinite(due) and abs(due) <= LATEST_MS else LATEST_MS
        return message

    @property
    def last_error(self) -> Failure | None:
        return self.errors[-1] if self.errors else None

    def summary(self) -> dict[str, Any]:
        """Return what a program or a page shows of the delayed message, without its body."""
        last = self.last_error
        return {
            "id": self.id if self.readable else "",
            "queue": self.queue,
            "routing_key": self.routing_key,
            "key": self.key,
            "due_at": self.due_at,
            "enqueued_at": self.enqueued_at,
            "failures": self.failures,
            "deliveries": self.deliveries,
            "headers": self.headers,
            "size": len(self.body),
            "error_class": last.error_class if last else "",
            "error": last.text if last else "",
            "failed_at": last.at if last else None,
        }
