"""How a queue is spread over its partitions, and how far a change of their number is."""

from collections.abc import Sequence
from dataclasses import dataclass

from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.model.stats import Stats
from reliq.ops import Steps, Together
from reliq.protocol.homes import QueueHomes
from reliq.protocol.resizing import keys_elsewhere
from reliq.protocol.stats import stats_of


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One partition at one instant."""

    name: str  #: the queue that it is in Redis
    open: bool  #: whether it takes new messages; else it is forgotten once it is empty
    stats: Stats
    keys_elsewhere: int  #: keys with messages here whose home is another partition by now


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The partitions of a queue; the numbers of keys are counted only while a change is under way."""

    count: int  #: partitions that take messages
    before: int  #: how many there were before the latest change
    moving: bool  #: whether messages may still be in the former home of their key
    partitions: Sequence[PartitionStats]


def progress(partitions: QueueHomes) -> Steps[PartitionProgress]:
    """Read the partitions of a queue."""
    yield from partitions.every(fresh=0.0)
    layout = partitions.layout
    names = layout.every(partitions.queue)
    moving = layout.moving
    answers = yield Together([_look(QueueKeys(name), moving) for name in names])
    partitions.seen(dict(zip(names, answers, strict=True)))
    parts = [
        PartitionStats(name, place < layout.count, *answer)
        for place, (name, answer) in enumerate(zip(names, answers, strict=True))
        if not isinstance(answer, ReliqError)
    ]
    return PartitionProgress(layout.count, layout.before, moving, parts)


def spread(partitions: QueueHomes) -> Steps[PartitionProgress | None]:
    """Do the same; None of a queue with one home only."""
    every = yield from partitions.every()
    return (yield from progress(partitions)) if len(every) > 1 else None


def _look(keys: QueueKeys, moving: bool) -> Steps[tuple[Stats, int]]:
    stats = yield from stats_of(keys)
    elsewhere = (yield from keys_elsewhere(keys)) if moving else 0
    return stats, elsewhere
