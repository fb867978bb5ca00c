"""Messages in flight, as their receiver sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from reliq.model.element import name_of
from reliq.model.message import Message
from reliq.model.token import as_token, read_token
from reliq.runtime.pieces import grouped

#: A header of messages that were received: ms since the epoch of the first time, by the receiver's clock.
FIRST_RECEIVED = "reliq-first-received"

#: Another one: the same of the latest time, if that is not the first.
LATEST_RECEIVED = "reliq-latest-received"


class Handle(NamedTuple):
    """A message in flight, as a receipt tells it."""

    queue: str
    group: str  #: of its key
    name: bytes  #: how its element begins


class Receipt(str):
    """What the receiver of a message deletes it with: the queue, a home maybe, and the message's name there.

    Printable ASCII without blanks. Each receive of a message gives it another one.
    """

    __slots__ = ()

    @classmethod
    def of(cls, queue: str, message: Message) -> Self:
        """Return the receipt of a message in flight."""
        text = f"{queue} {message.group} ".encode() + name_of(message.element)
        return cls(as_token(text))

    def read(self) -> "Handle | None":
        """Return what it says; None for a text that is no receipt."""
        try:
            queue, group, name = read_token(self).split(b" ", 2)
            return Handle(queue.decode("ascii"), group.decode("ascii"), name) if name else None
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Received:
    """A message in flight. Times are ms since the epoch."""

    message: Message
    receipt: Receipt
    receives: int  #: how often, with this time, it was received or its handlers failed, here and in earlier queues
    first_received_at: int
    received_at: int  #: that of this receive; a repeated attempt is the same receive


#: What the scripts answer for each receipt of a call: done, and why not.
DONE, EXPIRED, UNKNOWN = "d", "expired", "unknown"
CODES = {"e": EXPIRED, "u": UNKNOWN}


class ReceiveRequest(NamedTuple):
    """The options of a receive."""

    limit: int
    visibility: float  #: seconds
    most_receives: int | None = None
    runs: bool = False
    attempt: str | None = None
    most_in_flight: int | None = None


def by_queue(receipts: Sequence[str]) -> dict[str, list[tuple[int, Handle]]]:
    """Return the readable receipts by their queue, each with its position in the call."""
    found = ((position, Receipt(text).read()) for position, text in enumerate(receipts))
    return grouped((one.queue, (position, one)) for position, one in found if one is not None)
