"""The counts of batches in a queue that is deleted, or in a home that is forgotten."""

from collections.abc import Mapping, Sequence
from typing import Any

from reliq import ops
from reliq.features.batches import ops as own
from reliq.features.batches.model import Counts
from reliq.model.keys import QueueKeys, batch_record
from reliq.ops import Op, Steps, Transaction, Watch
from reliq.protocol.features import Counted

_SCAN_STEP = 1000  #: fields that one call looks at


def _counts_in(keys: QueueKeys) -> Steps[dict[str, Counts]]:
    """Return the counts that a queue has, by batch."""
    found: dict[str, Counts] = {}
    cursor, more = 0, (yield own.batches_in(keys))
    while more:
        cursor, page = yield own.scan_counts(keys, cursor, _SCAN_STEP)
        found |= page
        more = cursor > 0
    return found


def _note_place(keys: QueueKeys) -> Steps[dict[str, bool]]:
    """Note in the records of batches that this queue has counts of them: a home may soon be in no layout.

    Return for each of these batches whether it has not ended.
    """
    noted = {}
    for batch in (yield from _counts_in(keys)):
        noted[batch] = yield from _note(batch, keys.queue)
    return noted


def _note(batch: str, queue: str) -> Steps[bool]:
    record = batch_record(batch)
    while True:
        (is_there,) = yield Watch((record,), (ops.exists(record),))
        if not is_there:
            yield Transaction(())
            return False
        if (yield Transaction((own.batch_place(batch, queue),))) is not None:
            return True


def _keep_counts(keys: QueueKeys, noted: Mapping[str, bool]) -> Steps[Sequence[Op[Any]] | None]:
    counts = yield from _counts_in(keys)
    if not counts.keys() <= noted.keys():
        return None
    return own.store_counts(keys, {batch: one.all_cancelled() for batch, one in counts.items() if noted[batch]})


#: The counts of batches stay until these have ended.
COUNTS = Counted(_note_place, _keep_counts)
