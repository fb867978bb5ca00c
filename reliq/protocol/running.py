"""The messages in processing, with the progress that their handlers report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reliq import ops
from reliq.model.found import Progress
from reliq.model.keys import QueueKeys
from reliq.model.listed_message import Glimpse, ListedMessage
from reliq.ops import Steps

CONSUMERS = 100  #: whose processing lists are read
_FROM_EACH = 10  #: messages of one consumer


@dataclass(frozen=True, slots=True)
class Running:
    """A message in processing. `progress`: what its handler has reported, without the state."""

    message: ListedMessage
    consumer: str
    progress: Progress | None = None

    @property
    def fraction(self) -> float | None:
        """How far this run is, from 0 to 1; None without a report since the message was delivered."""
        if self.progress is None or self.progress.tag != self.message.tag:
            return None
        return self.progress.fraction


def running(queue: str, most: int) -> Steps[list[Running]]:
    """Read up to `most` messages in processing, those claimed first of each consumer; with progress first."""
    keys = QueueKeys(queue)
    consumers: Sequence[str] = sorted((yield ops.members(keys.consumers)))[:CONSUMERS]
    if not consumers:
        return []
    lists: list[list[Glimpse]] = yield [ops.upcoming(keys.processing(one), 0, _FROM_EACH, 0) for one in consumers]
    held = [
        Running(message, consumer)
        for consumer, glimpses in zip(consumers, lists, strict=True)
        for message in (ListedMessage.read(keys.logical, glimpse) for glimpse in glimpses)
    ]
    if not held:
        return []
    reports = yield [ops.progress_of(keys, one.message.id) for one in held]
    found = [Running(one.message, one.consumer, report) for one, report in zip(held, reports, strict=True)]
    return first_of(found, most)


def first_of(found: Iterable[Running], most: int) -> list[Running]:
    """Return up to `most` of these: those with progress first, and of them those sent first."""
    return sorted(found, key=lambda one: (one.fraction is None, one.message.enqueued_at))[:most]
