"""The places of a message, and what an act on several messages, or the handler of one, has come to."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Place(StrEnum):
    """The places of a message."""

    READY = "ready"
    WAITING = "waiting"  #: for its key, which another message holds
    PROCESSING = "processing"
    DELAYED = "delayed"
    PARKED = "parked"  #: waits for a signal
    PREPARED = "prepared"  #: its producer has not decided about it
    DEAD = "dead"
    DONE = "done"  #: it has left the queue; known while its result or its history is kept


@dataclass(frozen=True, slots=True)
class CancelledMany:
    """How many messages a filter has cancelled; with a dry run, how many it would."""

    cancelled: int = 0
    told: int = 0  #: consumers hold them, which learn it with their next heartbeat


@dataclass(frozen=True, slots=True)
class Progress:
    """What a handler has reported about a message, with the state that it can go on from."""

    fraction: float | None = None  #: from 0 to 1; None: it reported a state only
    text: str = ""
    at: int = 0  #: ms since the epoch, the Redis server's clock
    tag: str = ""  #: of the push of the message that the handler had; see Message.tag
    state: bytes | None = None  #: MessagePack
    sent: int = 0  #: ms at which the message was sent, the producer's clock; 0: not known

    def is_about(self, enqueued_at: int) -> bool:
        """Whether it is about the message sent at that ms; another one, sent before, may have had its id."""
        return self.sent in (0, enqueued_at)

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON, without the state."""
        return {
            "fraction": self.fraction,
            "text": self.text,
            "at": self.at,
            "state_bytes": None if self.state is None else len(self.state),
        }
