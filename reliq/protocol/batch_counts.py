"""The counts of batches in a queue that is deleted, or in a partition that is forgotten."""

from reliq import ops
from reliq.model.batch import Counts
from reliq.model.keys import QueueKeys, batch_record
from reliq.ops import Steps, Transaction, Watch

_SCAN_STEP = 1000  #: fields that one call looks at


def counts_in(keys: QueueKeys) -> Steps[dict[str, Counts]]:
    """Return the counts that a queue has, by batch."""
    found: dict[str, Counts] = {}
    cursor, more = 0, (yield ops.batches_in(keys))
    while more:
        cursor, page = yield ops.scan_counts(keys, cursor, _SCAN_STEP)
        found |= page
        more = cursor > 0
    return found


def note_place(keys: QueueKeys) -> Steps[dict[str, bool]]:
    """Note in the records of batches that this queue has counts of them: a partition may soon be in no layout.

    Return for each of these batches whether it has not ended.
    """
    noted = {}
    for batch in (yield from counts_in(keys)):
        noted[batch] = yield from _note(batch, keys.queue)
    return noted


def _note(batch: str, queue: str) -> Steps[bool]:
    record = batch_record(batch)
    while True:
        (is_there,) = yield Watch((record,), (ops.exists(record),))
        if not is_there:
            yield Transaction(())
            return False
        if (yield Transaction((ops.batch_place(batch, queue),))) is not None:
            return True
