"""Hold: a message as scripts look for it, which do nothing unless its consumer still holds it."""

from typing import Any, NamedTuple

from reliq.errors import LeaseLost
from reliq.model.element import name_of
from reliq.model.keys import QueueKeys
from reliq.model.message import Message


class Hold(NamedTuple):
    """A message and the consumer that holds it; `place`: where in its processing list, counted from the oldest."""

    keys: QueueKeys
    consumer: str
    message: Message
    place: int = 0
    uncounted: bool = False  #: moved by BLMOVE, and not yet counted as claimed

    @property
    def nonce(self) -> str:
        """That of this push of the message."""
        return self.message.tag.rpartition(" ")[2]

    @property
    def named(self) -> dict[str, Any]:
        """What each script is told of the message."""
        return {
            "lease": self.keys.lease(self.consumer), "processing": self.keys.processing(self.consumer),
            "id": self.message.id, "name": name_of(self.message.element), "position": self.place,
        }  # fmt: skip


def not_held(message: Message) -> LeaseLost:
    """Return the error about a message that its handler has no more."""
    return LeaseLost(
        f"message {message.id} of {message.queue!r} is not held here any more: its handler has ended, its time limit "
        "has passed or the lease was lost, and another consumer may be handling it; nothing was recorded"
    )
