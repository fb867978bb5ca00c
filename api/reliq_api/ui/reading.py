"""Reads for the dashboard: the consumers of a queue, its next messages, and the causes of its dead letters.

Each reads a bounded part, whatever the size of the queue.
"""

from collections import Counter
from dataclasses import dataclass

from reliq import ops
from reliq.model.delayed_message import DelayedMessage
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys, is_connected
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.protocol.dead_letters import DeadLetterSteps, Filter
from reliq.protocol.delayed import delayed_page

CONSUMERS_LARGEST = 100
NEXT_LARGEST = 10
TALLY_LARGEST = 1000
RETRIES_LARGEST = 10
RETRIES_LOOKED_AT = 50  #: of the delayed messages that are due first


@dataclass(frozen=True, slots=True)
class Holder:
    """A registered consumer."""

    id: str
    holds: int
    lease_left: float | None  #: seconds until its lease ends, below 0 after its end; None: no lease
    connected: bool  #: whether it keeps a connection; otherwise it is a lease over HTTP


@dataclass(frozen=True, slots=True)
class Next:
    """One of the ready messages that are taken next."""

    id: str
    size: int
    sent: int
    failures: int
    deliveries: int
    start: bytes  #: of its body


@dataclass(frozen=True, slots=True)
class Tally:
    """The causes of the latest dead letters."""

    counted: int
    complete: bool  #: whether all letters were counted
    reasons: tuple[tuple[str, int], ...]  #: the most frequent first
    errors: tuple[tuple[str, int], ...]


def exists(queue: str) -> Steps[bool]:
    return (yield from ops.one(ops.is_queue(QueueKeys(queue).queue)))


def holders(queue: str) -> Steps[list[Holder]]:
    """Read the consumers; those with the most messages first."""
    keys = QueueKeys(queue)
    names = (yield ops.members(keys.consumers))[:CONSUMERS_LARGEST]
    if not names:
        return []
    now, *answers = yield [
        ops.server_time(),
        *(ops.held_count(keys, name) for name in names),
        *(ops.lease_end(keys, name) for name in names),
    ]
    held, leases = answers[: len(names)], answers[len(names) :]
    found = [
        Holder(name, holds, None if lease is None else (lease - now) / 1000, is_connected(name))
        for name, holds, lease in zip(names, held, leases, strict=True)
    ]
    return sorted(found, key=lambda one: -one.holds)


def next_messages(queue: str) -> Steps[list[Next]]:
    """Read the ready messages that are taken next, in that order."""
    elements = yield ops.from_tail(QueueKeys(queue).messages, 0, NEXT_LARGEST)
    return [_next(queue, element) for element in reversed(elements)]


def _next(queue: str, element: bytes) -> Next:
    try:
        message = Message.decode(queue, element)
    except Undecodable:
        return Next("", len(element), 0, 0, 0, element[:200])
    body = message.body
    return Next(message.id, len(body), message.enqueued_at, message.failures, message.deliveries, body[:200])


def retries(queue: str) -> Steps[list[DelayedMessage]]:
    """Read the messages that wait for a retry, among the delayed ones that are due first."""
    page = yield from delayed_page(QueueKeys(queue), RETRIES_LOOKED_AT, None, failed=False)
    return [message for message in page if message.failures][:RETRIES_LARGEST]


def tally(queue: str) -> Steps[Tally]:
    """Count the latest dead letters by reason and by their last error."""
    page = yield from DeadLetterSteps(QueueKeys(queue)).page(Filter(), TALLY_LARGEST, None)
    letters = page.letters
    errors = Counter(letter.last_error.error_class for letter in letters if letter.last_error)
    reasons = Counter(letter.reason for letter in letters)
    return Tally(len(letters), page.next is None, tuple(reasons.most_common()), tuple(errors.most_common(8)))
