"""Closed partitions at rest leave their share of a queue's rate and concurrency to the others.

One that has nothing to give out may be kept for days, for the results of its messages. A monitor lets it rest: it
starts no message any more (its concurrency is 0), and then the others share what it had. Messages may come back to it,
by a redrive or a staged job: they wait until a monitor has shared again, so that all partitions together never start
more than the queue may.
"""

from collections.abc import Callable
from typing import NamedTuple

from reliq import ops
from reliq.model.keys import QueueKeys, partition_queue
from reliq.model.partitions import Layout
from reliq.ops import Steps
from reliq.ops.schema import Config
from reliq.protocol.resizing import replace
from reliq.protocol.shares import share_again
from reliq.protocol.stats import stats_of

_SOON = 60.0  #: seconds; a partition with a delayed message that is due by then does not rest


class _Seen(NamedTuple):
    has_messages: bool  #: that are ready, or soon will be
    rests: bool


def rest(queue: str, layout: Layout, away: Callable[[QueueKeys], bool]) -> Steps[bool]:
    """Let closed partitions without messages rest, and wake others; return whether the shares have changed.

    Only where the queue has a rate or a concurrency. Those whose node is `away` stay as they are.
    """
    if layout.moving or not layout.retired or not (yield ops.paced_by(QueueKeys(queue)))[0]:
        return False
    rested, wrong = list[str](), False
    for name in layout.retired:
        keys, rests = QueueKeys(partition_queue(queue, name)), name in layout.resting
        if not away(keys):
            seen = yield from _look(keys)
            wrong |= seen.rests != rests  # a monitor has ended in between
            rests = not seen.has_messages and (rests or (yield from _let_rest(keys)))
        rested += [name] if rests else []
    changed = layout.rested(rested)
    if changed.resting != layout.resting:
        return (yield from replace(queue, layout, changed)) and (yield from share_again(queue, changed))
    return wrong and (yield from share_again(queue, layout))


def _look(keys: QueueKeys) -> Steps[_Seen]:
    there, (due,), (_, rests) = yield [
        ops.any_exists([*ops.ready_lists(keys), keys.waiting]),
        ops.due([keys], _SOON),
        ops.paced_by(keys),
    ]
    return _Seen(there or due >= 0, rests)


def _let_rest(keys: QueueKeys) -> Steps[bool]:
    """Let a partition start no message any more, if it has none; return whether it still had none then."""
    if not (yield from _is_idle(keys)):
        return False
    yield ops.configure(keys, {Config.CONCURRENCY: 0}, ())
    return (yield from _is_idle(keys))


def _is_idle(keys: QueueKeys) -> Steps[bool]:
    counts = yield from stats_of(keys)
    return counts.ready + counts.processing == 0
