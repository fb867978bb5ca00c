"""The arguments with which queues are declared: those of RabbitMQ that reliq has, and those that it refuses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from reliq.errors import InvalidSetting

_REFUSED = {
    "x-message-ttl": "give the messages a time of their own: expires= in Celery, expiration= in kombu",
    "x-expires": "it is for queues that are exclusive or to be deleted; delete others by hand",
    "x-max-length-bytes": "set it in reliq, `reliq queue config QUEUE max_bytes=...`: then sends to a full queue fail",
    "x-dead-letter-exchange": "what is rejected or expires is a dead letter of its queue: `reliq dead list QUEUE`",
    "x-single-active-consumer": "set `reliq queue config QUEUE concurrency=1`: one message at a time of all consumers",
}
_AWAITED = 86_400
_LENGTH = "reliq drops no message: declare it with x-overflow 'reject-publish', and sends to a full queue fail"


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """What reliq does for a queue because of its arguments."""

    prioritised: bool = False
    max_length: int | None = None
    awaited: int = _AWAITED  #: seconds for which a passing queue waits for its first consumer

    @classmethod
    def of(cls, queue: str, given: Mapping[str, Any], *, passing: bool) -> Self:
        """Read the arguments; raises InvalidSetting for those that would be ignored although they mean something.

        A `passing` queue, which goes with its consumer, has limits of its own: Celery declares such queues with any.
        """
        prioritised = "x-max-priority" in given
        if passing:
            return cls(prioritised, awaited=max(1, int(given.get("x-expires", _AWAITED * 1000)) // 1000))
        for name, instead in _REFUSED.items():
            if name in given:
                raise InvalidSetting(f"queue {queue!r} has the argument {name}, which reliq does not know: {instead}")
        if "x-max-length" in given and given.get("x-overflow") != "reject-publish":
            raise InvalidSetting(f"queue {queue!r} has the argument x-max-length: {_LENGTH}")
        return cls(prioritised, given.get("x-max-length"))
