"""Batches: when all messages of one have ended, the message at its end is sent, and its counts are deleted."""

from collections.abc import Callable, Sequence

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.model.batch import Counts
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.ops.schema import Batch as Field
from reliq.protocol.batches import MOST, end, waits
from reliq_monitor.attempts import Attempts
from reliq_monitor.queue_scan import pages

DUTY = "batches"


class Batches:
    """The batches that have not ended. A turn looks at `MOST` of them, beginning behind those of the turn before."""

    def __init__(self, attempts: Attempts, away: Callable[[QueueKeys], bool] = lambda _: False) -> None:
        """`away`: whether the node of a queue is away."""
        self._attempts = attempts
        self._away = away
        self._first = 0  #: so many of the oldest ones were looked at since the beginning was

    def turn(self) -> Steps[int]:
        """End the batches whose messages have ended; return how many."""
        attempts, ended = self._attempts, 0
        batches = yield from attempts.of_all(DUTY, ops.one(ops.batch_ids(MOST, self._first)), [])
        for page in pages(batches):
            few = yield from attempts.of_all(DUTY, _without_open(page, self._away), (), "counts", elsewhere=True)
            for batch in few:
                ended += yield from attempts.of_all(DUTY, end(batch), otherwise=False, item=batch, elsewhere=True)
        self._first = self._first + MOST - ended if len(batches) == MOST else 0
        return ended


def _without_open(batches: Sequence[str], away: Callable[[QueueKeys], bool]) -> Steps[Sequence[str]]:
    """Return those of the batches that have to be looked at one by one, with two calls for all of them."""
    try:
        records = yield [ops.batch_fields(batch) for batch in batches]
        pairs = [(batch, one) for batch, one in zip(batches, records, strict=True) if not waits(one)]
        # One that is ending ends, even if a message of it was sent again since.
        found = [(batch, [] if Field.ENDING in one else ops.queues_in(one)) for batch, one in pairs]
        found = [(batch, queues) for batch, queues in found if not any(map(away, queues))]
        reads = [ops.batch_counts(keys, batch) for batch, queues in found for keys in queues]
        counts = iter((yield reads) if reads else ())
        return [batch for batch, queues in found if not sum((next(counts) for _ in queues), Counts()).open]
    except (RedisUnsuitable, ValueError):  # a record or a count that cannot be read: it fails alone
        return batches
