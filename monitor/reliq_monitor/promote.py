"""Promote: make delayed messages ready when they are due, in steps too short to be felt by anybody else."""

from reliq import ops
from reliq.ops import Steps
from reliq_monitor.looking import Groups, having

BATCH = 100  #: messages a script call
CALLS = 4  #: script calls a round trip, for a queue that has many due


def promote_due(groups: Groups, ahead: float) -> Steps[tuple[int, float | None]]:
    """Promote what is due, one batch a queue, some more where a whole batch was.

    Answers how many were promoted, and the seconds until the next is due: 0.0 = now, None = none is known to be.
    Looks `ahead` seconds.
    """
    groups = yield from having(groups, lambda keys: keys.delayed)
    if not groups:
        return 0, None
    looks = yield [ops.due(group, ahead) for group in groups]
    later = [soonest for soonest, *_ in looks if soonest >= 0]
    due = [group[place - 1] for group, (_, *places) in zip(groups, looks, strict=True) for place in places]
    answers = (yield [ops.promote(keys, BATCH) for keys in due]) if due else []
    busy = [keys for keys, (count, _) in zip(due, answers, strict=True) if count == BATCH]
    for keys in busy:
        answers += yield [ops.promote(keys, BATCH)] * CALLS
    later += [soonest for _, soonest in answers if soonest >= 0]
    return sum(count for count, _ in answers), min(later) / 1000 if later else None
