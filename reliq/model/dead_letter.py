"""A dead letter: a message together with the reason and the time of its death."""

from typing import Any, Final, Self

from reliq.contract.values import MAX_TIME_MS
from reliq.model.element import BODY_REFERENCE, Failure
from reliq.model.listed_message import Glimpse, ListedMessage, summarized

#: A header of messages that were dead letters: the queue in which they died.
DEAD_FROM: Final = "reliq-dead-from"

_APART_START = b"\x9a\x02"  # of an element whose body is apart


def letter_field(identity: str) -> str:
    """Return the field of the index that has the score of a dead letter (reliq/lua/shared/letters.lua)."""
    return f" {identity}"


class DeadLetter(ListedMessage):
    """A message that is not run again unless it is redriven."""

    __slots__ = ("died_at",)

    died_at: int  #: ms since the epoch, the Redis server's clock

    @classmethod
    def read(cls, queue: str, glimpse: Glimpse) -> Self:
        letter = super().read(queue, glimpse)
        letter.died_at = int(min(max(0.0, float(glimpse.score)), MAX_TIME_MS))  # one written by hand may be any number
        return letter

    @property
    def leaves_behind(self) -> bytes:
        """The reference to the body that is to be deleted with the letter; also that of a message inside of it.

        A worker of an earlier version does not decode a message with its body apart, and wraps it as it is.
        """
        wraps = self.reason == "decode" and self.preview.startswith(_APART_START)
        return self.preview[-BODY_REFERENCE:] if wraps else self.reference

    @property
    def first_error(self) -> Failure | None:
        return self.errors[0] if self.errors else None

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON, without its body."""
        return summarized(
            self, "id", "queue", "routing_key", "key", "reason", "died_at", "enqueued_at", "failures", "deliveries",
            "headers", "size",
        )  # fmt: skip
