"""What the sender of a request may do."""

from dataclasses import dataclass
from functools import lru_cache

from reliq_api.access.keyring import matches

#: The actions of each scope. The first two are enough for most programs, which find their queue by its name.
_LOOK = ("GetQueueUrl", "GetQueueAttributes", "ListQueues", "ListQueueTags", "ListDeadLetterSourceQueues")
SCOPES: dict[str, frozenset[str]] = {
    "send": frozenset((*_LOOK, "SendMessage", "SendMessageBatch")),
    "receive": frozenset(
        (
            *_LOOK, "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility",
            "ChangeMessageVisibilityBatch",
        )
    ),
    "manage": frozenset(
        (
            *_LOOK, "CreateQueue", "DeleteQueue", "PurgeQueue", "SetQueueAttributes", "TagQueue", "UntagQueue",
            "AddPermission", "RemovePermission", "StartMessageMoveTask", "CancelMessageMoveTask",
            "ListMessageMoveTasks",
        )
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a request: the holder of an access key or, without signatures, anybody on this machine."""

    id: str = ""  #: of the access key
    scopes: tuple[str, ...] = tuple(SCOPES)
    queues: tuple[str, ...] = ("*",)  #: patterns of names; `*` stands for any text

    def covers(self, queue: str) -> bool:
        """Whether the rights, of whatever scope, are for this queue of reliq."""
        return _covered(self.queues, queue)

    def may(self, action: str, queue: str) -> bool:
        return self.allows(action) and self.covers(queue)

    def allows(self, action: str) -> bool:
        return action in _allowed(self.scopes)


@lru_cache(maxsize=10_000)
def _covered(patterns: tuple[str, ...], queue: str) -> bool:
    return any(matches(one, queue) for one in patterns)


@lru_cache
def _allowed(scopes: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*(SCOPES[one] for one in scopes if one in SCOPES))


ANYBODY = Sender()
