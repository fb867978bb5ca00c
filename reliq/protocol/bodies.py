"""Bodies that are stored apart from their elements, in the hash `bodies` of their queue."""

import bisect
import itertools
from collections.abc import Sequence
from typing import TypeVar

from reliq import ops
from reliq.model import settings
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps

M = TypeVar("M", bound=Message)


def first_of(messages: Sequence[M], most_bytes: int) -> Sequence[M]:
    """Return the first messages, at least one, as many as have at most `most_bytes`."""
    totals = list(itertools.accumulate(message.size for message in messages))
    return messages[: max(1, bisect.bisect_right(totals, most_bytes))]


def read_bodies(keys: QueueKeys, messages: Sequence[Message]) -> Steps[None]:
    """Read the bodies that these messages lack, a few megabytes at a time.

    A message whose body does not exist stays without: it was settled or deleted meanwhile.
    """
    unread = [message for message in messages if not message.body_is_read]
    while unread:
        some = first_of(unread, settings.READ_BYTES)
        bodies = yield ops.stored_bodies(keys, [message.reference for message in some])
        for message, body in zip(some, bodies, strict=True):
            if body is not None:
                message.with_body(body)
        unread = unread[len(some) :]
