"""Where a message is, and what became of a request to cancel it."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from reliq.model.found import Place, Progress
from reliq.model.listed_message import ListedMessage, summarized

#: What is shown of a message that is found.
_OF_MESSAGE = (
    "enqueued_at", "failures", "deliveries", "redelivered", "headers", "routing_key", "key", "limit_key", "priority",
    "size",
)  # fmt: skip


class Cancellation(StrEnum):
    """What became of a request to cancel a message. True, as a condition, only if the message was removed."""

    CANCELLED = "cancelled"  #: removed: it will never run
    TOLD = "told"  #: a consumer holds it, which learns it with its next heartbeat
    DONE = "done"  #: it has ended: it was handled, or is a dead letter
    UNKNOWN = "unknown"  #: it is not in the queue

    def __bool__(self) -> bool:
        return self is Cancellation.CANCELLED


@dataclass(frozen=True, slots=True)
class Event:
    """A transition of a message. `at`: ms since the epoch, the Redis server's clock; `name`: that of the counter."""

    at: int  #: ms since the epoch, the Redis server's clock
    name: str  #: as the counter of the queue that counts it: enqueued, claimed, acked, retried, ...
    detail: str = ""  #: the consumer that claimed it, the delay of a retry, ...


@dataclass(frozen=True, slots=True)
class Found:
    """Where a message of a queue is, as `find` has seen it."""

    queue: str
    id: str
    place: Place
    message: ListedMessage | None = None  #: without its body; None if it is done
    position: int | None = None  #: of a ready message: about how many are taken before it
    limited_by: str = ""  #: of a ready message: why none starts now: paused, held, breaker, rate, concurrency
    waiting_for: str = ""  #: of a waiting message: its key
    consumer: str = ""  #: of one in processing: who holds it
    since: int | None = None  #: ms since the epoch: claimed then, or done; known with history
    due_at: int | None = None  #: of a delayed message: ms since the epoch
    died_at: int | None = None  #: of a dead letter: ms since the epoch
    reason: str = ""  #: of a dead letter
    progress: Progress | None = None  #: what its handler has reported
    history: tuple[Event, ...] = ()  #: oldest first, where the queue keeps a history
    waiting_for_flow: str = ""  #: of a waiting message: the id of its flow, if it waits for messages of that

    @property
    def why(self) -> str:
        """Say in a sentence why the message is in its place, and what it waits for."""
        match self.place:
            case Place.READY:
                ahead = "next to run" if not self.position else f"after about {self.position:,} others"
                return f"{ahead}; none starts now: {self.limited_by}" if self.limited_by else ahead
            case Place.WAITING:
                if self.waiting_for_flow:
                    return f"it waits for messages of its flow {self.waiting_for_flow}"
                if not self.waiting_for:
                    return "an earlier message of its dedup_key is before it"
                return f"another message of its key {self.waiting_for!r} is before it"
            case Place.PROCESSING:
                return f"held by consumer {self.consumer}"
            case Place.DELAYED:
                failures = self.message.failures if self.message else 0
                return f"waits for the next try after {failures} failures" if failures else "not due yet"
            case Place.PARKED:
                return "it waits for a signal"
            case Place.PREPARED:
                return "its producer has not decided about it"
            case Place.DEAD:
                return f"died: {self.reason}"
            case Place.DONE:
                return f"it has left the queue: {self.reason or 'handled'}"

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON; times are ms since the epoch."""
        return {
            "id": self.id,
            "queue": self.queue,
            "place": self.place.value,
            "why": self.why,
            "position": self.position,
            "limited_by": self.limited_by,
            "waiting_for": self.waiting_for,
            "waiting_for_flow": self.waiting_for_flow,
            "consumer": self.consumer,
            "since": self.since,
            "due_at": self.due_at,
            "died_at": self.died_at,
            "reason": self.reason,
            "message": None if self.message is None else summarized(self.message, *_OF_MESSAGE),
            "progress": None if self.progress is None else self.progress.summary(),
            "history": [asdict(event) for event in self.history],
        }
