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
    # Of a thousand queues a few have something due: a plain look is a third of the script's cost.
    now, *firsts = yield [ops.server_time(), *(ops.first_delayed(keys) for keys in every)]
    later = [due - now for due in firsts if due is not None and due > now]
    due_now = [keys for keys, due in zip(every, firsts, strict=True) if due is not None and due <= now]
    answers = (yield [ops.promote(keys, BATCH) for keys in due_now]) if due_now else []
    busy = [keys for keys, (count, _) in zip(due_now, answers, strict=True) if count == BATCH]
    for keys in busy:
        answers += yield [ops.promote(keys, BATCH)] * CALLS
    later += [due for _, due in answers if due >= 0]
    return sum(count for count, _ in answers), min(later) / 1000 if later else None
