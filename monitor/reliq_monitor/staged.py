"""Staged jobs with a dead leader: committed ones are rolled forward, others are removed after their time limit."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import JobKeys
from reliq.ops import Steps
from reliq.protocol.staging import due_jobs, finish_due
from reliq_monitor.queue_scan import Survey, pages

DUTY = "staged"
ROLLS = 100  #: chunks (reliq.ops.chunks) per job and turn: the monitor's other duties must not wait long


def finish_staged(survey: Survey) -> Steps[int]:
    """Finish the due jobs, of single queues and of several; return how many messages became visible."""
    attempts, moved = survey.attempts, 0
    for page in pages((yield from survey.having(DUTY, lambda home: home.jobs, survey.homes))):
        for home, names in (yield from attempts.together(DUTY, page, _due)):
            for name in names:  # one by one: an unreadable manifest must not hold up the others
                steps = finish_due(home, [name], ROLLS)  # its parts may lie elsewhere
                moved += yield from attempts.of_queue(DUTY, home, steps, 0, repr(name), elsewhere=True)
    return moved


def _due(homes: Sequence[JobKeys]) -> Steps[list[list[bytes]]]:
    now = yield ops.server_time()
    names: list[list[bytes]] = yield [due_jobs(home, now) for home in homes]
    return names
