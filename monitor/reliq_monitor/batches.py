"""Batches: when all messages of one have ended, the message at its end is sent, and its counts are deleted."""

from reliq import ops
from reliq.ops import Steps
from reliq.protocol.batches import MOST, end
from reliq_monitor.attempts import Attempts

DUTY = "batches"


def end_batches(attempts: Attempts) -> Steps[int]:
    """End the batches whose messages have ended; return how many."""
    ended = 0
    for batch in (yield from attempts.of_all(DUTY, ops.one(ops.batch_ids(MOST)), [])):
        ended += yield from attempts.of_all(DUTY, end(batch), otherwise=False, item=batch)
    return ended
