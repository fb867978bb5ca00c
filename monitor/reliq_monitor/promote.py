"""Promote: make delayed messages ready when they are due, in steps too short to be felt by anybody else."""

from collections.abc import Sequence

from reliq import ops
from reliq.keys import QueueKeys
from reliq.ops import Steps

BATCH = 100  #: messages a script call
CALLS = 4  #: script calls a round trip, for a queue that has many due


def promote_due(every: Sequence[QueueKeys]) -> Steps[tuple[int, float | None]]:
    """Promote what is due, one batch a queue, some more where a whole batch was.

    Answers how many were promoted, and the seconds until the next is due: 0.0 = now, None = none is delayed.
    """
    if not every:
        return 0, None
    promoted, next_due = 0, -1
    answers = yield [ops.promote(keys, BATCH) for keys in every]
    busy = [keys for keys, (count, _) in zip(every, answers, strict=True) if count == BATCH]
    for keys in busy:
        answers += yield [ops.promote(keys, BATCH)] * CALLS
    for count, due in answers:
        promoted += count
        if due >= 0:
            next_due = due if next_due < 0 else min(next_due, due)
    return promoted, None if next_due < 0 else next_due / 1000
