"""Staged jobs whose leader died: what is committed is rolled forward, what nobody will commit is removed."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import SEVERAL, JobKeys
from reliq.ops import Steps
from reliq.protocol.staging import due_jobs, finish_due
from reliq_monitor.queue_scan import Survey, pages

DUTY = "staged"
ROLLS = 100  #: chunks (reliq.chunks), a job and a look: the monitor's other duties must not wait for long


def finish_staged(survey: Survey) -> Steps[int]:
    """Finish the jobs that are due, of these queues and of several at once; how many messages became visible."""
    attempts, moved = survey.attempts, 0
    homes: list[JobKeys] = [SEVERAL, *survey.queues]
    for page in pages((yield from survey.having(DUTY, lambda home: home.jobs, homes))):
        for home, names in (yield from attempts.together(DUTY, page, _due)):
            for name in names:  # each by itself: one whose manifest cannot be read must not hold up the others
                moved += yield from attempts.of_queue(DUTY, home, finish_due(home, [name], ROLLS), 0, repr(name))
    return moved


def _due(homes: Sequence[JobKeys]) -> Steps[list[list[bytes]]]:
    now = yield ops.server_time()
    names: list[list[bytes]] = yield [due_jobs(home, now) for home in homes]
    return names
