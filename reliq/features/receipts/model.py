"""Messages in flight, as their receiver sees them."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from reliq.model.element import name_of
from reliq.model.message import Message

#: A header of messages that were received: ms since the epoch of the first time, by the receiver's clock.
FIRST_RECEIVED = "reliq-first-received"


class Receipt(str):
    """What the receiver of a message deletes it with: the queue, a partition maybe, and the message's name there.

    Printable ASCII without blanks. Each receive of a message gives it another one.
    """

    __slots__ = ()

    @classmethod
    def of(cls, queue: str, element: bytes) -> Self:
        """Return the receipt of a message in flight, by its element there."""
        text = queue.encode() + b" " + name_of(element)
        return cls(base64.urlsafe_b64encode(text).decode().rstrip("="))

    def read(self) -> tuple[str, bytes] | None:
        """Return the queue and the name; None for a text that is no receipt."""
        try:
            text = base64.b64decode(self + "=" * (-len(self) % 4), altchars=b"-_", validate=True)
            queue, blank, name = text.partition(b" ")
            return (queue.decode("ascii"), name) if blank and name else None
        except (binascii.Error, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Received:
    """A message in flight."""

    message: Message
    receipt: Receipt
    receives: int  #: how often it was received or its handlers failed, this time included
    first_received_at: int  #: ms since the epoch


#: What the scripts answer for each receipt of a call: done, and why not.
DONE, EXPIRED, UNKNOWN = "d", "expired", "unknown"
CODES = {"e": EXPIRED, "u": UNKNOWN}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a receive asks for."""

    limit: int
    visibility: float  #: seconds
    most_receives: int | None = None
    runs: bool = False
    attempt: str | None = None
    most_in_flight: int | None = None


def by_queue(receipts: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
    """Return the readable receipts by their queue: each by its position in the call, with its name."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for position, text in enumerate(receipts):
        there = Receipt(text).read()
        if there is not None:
            found.setdefault(there[0], []).append((position, there[1]))
    return found
