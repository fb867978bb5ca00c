"""Prepared messages that nobody has decided about in time: ask, and after so many times give up."""

from collections.abc import Sequence

from reliq import ops
from reliq.keys import QueueKeys
from reliq.ops import Steps
from reliq.prepared import ask_overdue, overdue

_QUEUES_PER_TRIP = 100


def ask_undecided(every: Sequence[QueueKeys]) -> Steps[tuple[int, int]]:
    """Of these queues; how many were asked about, and how many became dead letters."""
    asked = died = 0
    for start in range(0, len(every), _QUEUES_PER_TRIP):
        group = every[start : start + _QUEUES_PER_TRIP]
        now = yield ops.server_time()
        due = yield [overdue(keys, now) for keys in group]
        for keys, ids in zip(group, due, strict=True):
            if ids:
                counts = yield from ask_overdue(keys, ids)
                asked, died = asked + counts[0], died + counts[1]
    return asked, died
