"""Prepared messages that nobody has decided about in time: ask, and after so many times give up."""

from reliq import ops
from reliq.ops import Steps
from reliq.prepared import ask_overdue, overdue
from reliq_monitor.looking import Groups, having, pages


def ask_undecided(groups: Groups) -> Steps[tuple[int, int]]:
    """Of these queues; how many were asked about, and how many became dead letters."""
    asked = died = 0
    for some in pages((yield from having(groups, lambda keys: keys.prepared))):
        now = yield ops.server_time()
        due = yield [overdue(keys, now) for keys in some]
        for keys, ids in zip(some, due, strict=True):
            if ids:
                counts = yield from ask_overdue(keys, ids)
                asked, died = asked + counts[0], died + counts[1]
    return asked, died
