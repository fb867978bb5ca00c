"""Reads for the dashboard: the consumers of a queue, its next messages, and the causes of its dead letters.

Each reads a bounded part, whatever the size of the queue.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from reliq import ops
from reliq.model.dead_letter import DeadLetter
from reliq.model.delayed_message import DelayedMessage
from reliq.model.keys import QueueKeys, is_connected
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.ops import Steps
from reliq.protocol.bodies import read_starts
from reliq.protocol.dead_letters import DeadLetterQueue, Filter, Page, gist_of
from reliq.protocol.delayed import Selection, delayed_of_queue
from reliq.protocol.homes import QueueHomes
from reliq.protocol.partial_reads import QUEUES, or_unseen
from reliq.protocol.running import Running, first_of, running

CONSUMERS_LARGEST = 100
NEXT_LARGEST = 10
START = 200  #: bytes of the body of a message that is taken next
BODY_READ = 256 * 1024  #: bytes of a dead letter's body: a larger one is shown in part, and not as formatted JSON
TALLY_LARGEST = 1000
GROUPS_LARGEST = 12  #: of dead letters with the same error
LINE_START = 200  #: characters of the first line of an error
RETRIES_LARGEST = 10
RUNNING_LARGEST = 20  #: messages in processing on the page of a queue
DEPTH = 100  #: messages of a list that are read to show the body of one
BODY_START = 4096  #: bytes of each of these bodies
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
    errors: tuple[tuple[str, str, int], ...]  #: class and first line of the last error, and how many


def exists(queue: str) -> Steps[bool]:
    """Whether a queue of this name exists; the name of one of several homes does not count."""
    known = or_unseen(QUEUES, ops.one(ops.is_queue(queue)), otherwise=True)
    return QueueKeys(queue).logical == queue and (yield from known)


def holders(homes: QueueHomes) -> Steps[list[Holder]]:
    """Read the consumers; those with the most messages first."""
    found = yield from homes.each(_holders)
    return sorted(chain(*found), key=lambda one: -one.holds)[:CONSUMERS_LARGEST]


def _holders(keys: QueueKeys) -> Steps[list[Holder]]:
    names = (yield ops.members(keys.consumers))[:CONSUMERS_LARGEST]
    if not names:
        return []
    now, *answers = yield [
        ops.server_time(),
        *(ops.held_count(keys, name) for name in names),
        *(ops.lease_end(keys, name) for name in names),
    ]
    held, leases = answers[: len(names)], answers[len(names) :]
    return [
        Holder(name, holds, None if lease is None else (lease - now) / 1000, is_connected(name))
        for name, holds, lease in zip(names, held, leases, strict=True)
    ]


def next_messages(homes: QueueHomes) -> Steps[list[Next]]:
    """Read the ready messages that are taken next, in that order; of several homes about in that order."""
    found = yield from homes.each(_next_messages)
    if len(found) == 1:
        return found[0]
    return sorted(chain(*found), key=lambda one: one.sent)[:NEXT_LARGEST]


def _next_messages(keys: QueueKeys) -> Steps[list[Next]]:
    found: list[Glimpse] = []
    while len(found) < NEXT_LARGEST:
        step = yield ops.upcoming(keys.messages, len(found), NEXT_LARGEST - len(found), START)
        if not step:
            break
        found += step
    messages = [ListedMessage.read(keys.logical, glimpse) for glimpse in found]
    yield from read_starts(keys, messages, START)
    return [_next(message) for message in messages]


def _next(message: ListedMessage) -> Next:
    start = message.preview[:START]
    if not message.readable:
        return Next("", message.size, 0, 0, 0, start)
    return Next(message.id, message.size, message.enqueued_at, message.failures, message.deliveries, start)


def letter(homes: QueueHomes, identity: str) -> Steps[DeadLetter | None]:
    """Read a dead letter with as much of its body as a page shows."""
    return (yield from DeadLetterQueue(homes).get(identity, BODY_READ))


def running_now(homes: QueueHomes) -> Steps[list[Running]]:
    """Read messages in processing; those with progress first."""
    found = yield from homes.each(lambda keys: running(keys.queue, RUNNING_LARGEST))
    return first_of(chain(*found), RUNNING_LARGEST)


def retries(homes: QueueHomes) -> Steps[list[DelayedMessage]]:
    """Read the messages that wait for a retry, among the delayed ones that are due first."""
    page = yield from delayed_of_queue(homes, RETRIES_LOOKED_AT, None, Selection(), bodies=False)
    return [message for message in page if message.failures][:RETRIES_LARGEST]


def tally(homes: QueueHomes) -> Steps[Tally]:
    """Count the latest dead letters by reason and by their last error."""
    page = yield from DeadLetterQueue(homes).page(Filter(), TALLY_LARGEST, None, bodies=False)
    letters = page.letters
    errors = Counter((one.last_error.error_class, gist_of(one)[:LINE_START]) for one in letters if one.last_error)
    reasons = Counter(letter.reason for letter in letters)
    return Tally(len(letters), page.next is None, tuple(reasons.most_common()), _groups(errors))


def _groups(errors: Counter[tuple[str, str]]) -> tuple[tuple[str, str, int], ...]:
    return tuple((name, line, count) for (name, line), count in errors.most_common(GROUPS_LARGEST))


def letters(homes: QueueHomes, wanted: Filter, limit: int, after: str | None) -> Steps[Page]:
    """Read a page of dead letters, each with the start of its body."""
    return (yield from DeadLetterQueue(homes).page(wanted, limit, after, bodies=False, start=START))
