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


def end_batches(attempts: Attempts, away: Callable[[QueueKeys], bool] = lambda _: False) -> Steps[int]:
    """End the batches whose messages have ended; return how many. `away`: whether the node of a queue is away."""
    ended = 0
    for page in pages((yield from attempts.of_all(DUTY, ops.one(ops.batch_ids(MOST)), []))):
        few = yield from attempts.of_all(DUTY, _without_open_messages(page, away), (), "counts", elsewhere=True)
        for batch in few:
            ended += yield from attempts.of_all(DUTY, end(batch), otherwise=False, item=batch, elsewhere=True)
    return ended


def _without_open_messages(batches: Sequence[str], away: Callable[[QueueKeys], bool]) -> Steps[Sequence[str]]:
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
