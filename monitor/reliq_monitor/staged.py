"""Staged jobs whose leader died: what is committed is rolled forward, what nobody will commit is removed."""

from collections.abc import Sequence

from reliq import ops
from reliq.keys import SEVERAL, JobKeys
from reliq.ops import Steps
from reliq.staging import due_jobs, finish_due
from reliq_monitor.looking import Groups, having, pages

ROLLS = 100  #: chunks (reliq.chunks), a job and a look: the monitor's other duties must not wait for long


def finish_staged(groups: Groups) -> Steps[int]:
    """Finish the jobs that are due, of these queues and of several at once; how many messages became visible."""
    homes: list[Sequence[JobKeys]] = [[SEVERAL], *groups]
    moved = 0
    for some in pages((yield from having(homes, lambda home: home.jobs))):
        now = yield ops.server_time()
        due = yield [due_jobs(home, now) for home in some]
        for home, jobs in zip(some, due, strict=True):
            moved += yield from finish_due(home, jobs, ROLLS)
    return moved
