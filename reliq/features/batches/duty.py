"""Batches: when all messages of one have ended, the message at its end is sent, and its counts are deleted."""

from collections.abc import Callable, Sequence

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.features.batches import ops as own
from reliq.features.batches.model import Counts
from reliq.features.batches.steps import MOST, end, waits
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.ops.schema import Batch as Field
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey, pages


class Batches(Duty[int]):
    """The batches that have not ended. A turn looks at `MOST` of them, beginning behind those of the turn before."""

    name = "batches"
    effect = "the messages of `on_done` and `on_dead` of batches that have ended are not sent"
    of_queues = False
    common = "@batches"

    def __init__(self) -> None:
        self._first = 0  #: so many of the oldest ones were looked at since the beginning was

    def turn(self, survey: Survey) -> Steps[int]:
        """End the batches whose messages have ended; return how many."""
        name, attempts, ended = self.name, survey.attempts, 0
        batches = yield from attempts.of_all(name, ops.one(own.batch_ids(MOST, self._first)), [])
        for page in pages(batches):
            few = yield from attempts.of_all(name, _without_open(page, survey.away), (), "counts", elsewhere=True)
            for batch in few:
                ended += yield from attempts.of_all(name, end(batch), otherwise=False, item=batch, elsewhere=True)
        self._first = self._first + MOST - ended if len(batches) == MOST else 0
        return ended


def _without_open(batches: Sequence[str], away: Callable[[QueueKeys], bool]) -> Steps[Sequence[str]]:
    """Return those of the batches that have to be looked at one by one, with two calls for all of them."""
    try:
        now, *records = yield [ops.server_time(), *map(own.batch_fields, batches)]
        pairs = [(batch, one) for batch, one in zip(batches, records, strict=True) if not waits(one, now)]
        # One that is ending ends, even if a message of it was sent again since.
        found = [(batch, [] if Field.ENDING in one else own.queues_in(one)) for batch, one in pairs]
        found = [(batch, queues) for batch, queues in found if not any(map(away, queues))]
        reads = [own.batch_counts(keys, batch) for batch, queues in found for keys in queues]
        counts = iter((yield reads) if reads else ())
        return [batch for batch, queues in found if not sum((next(counts) for _ in queues), Counts()).open]
    except (RedisUnsuitable, ValueError):  # a record or a count that cannot be read: it fails alone
        return batches
