"""A delayed message: when it is due and, if it waits for a retry, the error of its last run."""

import math
from typing import Any, Self

from reliq.model.listed_message import Glimpse, ListedMessage, summarized

LATEST_MS = 2**53  #: ms; a larger score was written by another program


class DelayedMessage(ListedMessage):
    """A message that waits until `due_at`, ms since the epoch by the Redis server's clock."""

    __slots__ = ("due_at",)

    due_at: int  #: ms since the epoch, the Redis server's clock

    @classmethod
    def read(cls, queue: str, glimpse: Glimpse) -> Self:
        message = super().read(queue, glimpse)
        due = float(glimpse.score)
        message.due_at = int(due) if math.isfinite(due) and abs(due) <= LATEST_MS else LATEST_MS
        return message

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON, without its body."""
        last = self.last_error
        found = summarized(
            self, "id", "queue", "routing_key", "key", "due_at", "enqueued_at", "failures", "deliveries", "headers",
            "size",
        )  # fmt: skip
        return {**found, "id": self.id if self.readable else "", "failed_at": last.at if last else None}
