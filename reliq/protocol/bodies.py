"""Bodies that are stored apart from their elements, in the hash `bodies` of their queue."""

from collections.abc import Sequence

from reliq import ops
from reliq.contract import values
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import ListedMessage
from reliq.model.message import Message
from reliq.ops import Steps


def first_of(messages: Sequence[Message], most_bytes: int) -> tuple[int, int]:
    """Return how many messages, from the first on, have at most `most_bytes`, at least one; and their bytes."""
    total = 0
    for count, message in enumerate(messages):
        size = message.size
        if count and total + size > most_bytes:
            return count, total
        total += size
    return len(messages), total


def read_bodies(keys: QueueKeys, messages: Sequence[Message]) -> Steps[None]:
    """Read the bodies that these messages lack, a few megabytes at a time.

    A message whose body does not exist stays without: it was settled or deleted meanwhile.
    """
    unread = [message for message in messages if not message.body_is_read]
    while unread:
        count, _ = first_of(unread, values.READ_BYTES)
        some = unread[:count]
        bodies = yield ops.stored_bodies(keys, [message.reference for message in some])
        for message, body in zip(some, bodies, strict=True):
            if body is not None:
                message.with_body(body)
        unread = unread[count:]


def read_starts(keys: QueueKeys, messages: Sequence[ListedMessage], shown: int) -> Steps[None]:
    """Read the first `shown` bytes of the bodies that these messages lack; Redis reads each whole."""
    unread = [message for message in messages if not message.body_is_read] if shown else []
    while unread:
        count, _ = first_of(unread, values.READ_BYTES)
        some = unread[:count]
        for message, start in zip(some, (yield ops.starts(keys, [one.reference for one in some], shown)), strict=True):
            if start is not None:
                message.with_body(start)
        unread = unread[count:]
