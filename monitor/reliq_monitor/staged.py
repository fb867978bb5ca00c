"""Staged jobs whose leader died: what is committed is rolled forward, what nobody will commit is removed."""

from collections.abc import Sequence

from reliq import ops
from reliq.keys import SEVERAL, JobKeys, QueueKeys
from reliq.ops import Steps
from reliq.staging import due_jobs, finish_due

ROLLS = 100  #: chunks (reliq.chunks), a job and a look: the monitor's other duties must not wait for long
_QUEUES_PER_TRIP = 100


def finish_staged(every: Sequence[QueueKeys]) -> Steps[int]:
    """Finish the jobs that are due, of these queues and of several at once; how many messages became visible."""
    homes: list[JobKeys] = [SEVERAL, *every]
    moved = 0
    for start in range(0, len(homes), _QUEUES_PER_TRIP):
        group = homes[start : start + _QUEUES_PER_TRIP]
        now = yield ops.server_time()
        due = yield [due_jobs(keys, now) for keys in group]
        for keys, jobs in zip(group, due, strict=True):
            moved += yield from finish_due(keys, jobs, ROLLS)
    return moved
