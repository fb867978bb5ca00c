"""Staged jobs with a dead leader: committed ones are rolled forward, others are removed after their time limit."""

import logging
from collections.abc import Sequence

from reliq import ops
from reliq.features.staging.steps import due_jobs, finish_due
from reliq.model.keys import SEVERAL, JobKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey, pages
from reliq_monitor.rotation import Rotation

log = logging.getLogger("reliq.monitor")

ROLLS = 100  #: chunks (reliq.ops.chunks) per job and turn: the monitor's other duties must not wait long


class StagedJobs(Duty[int]):
    """Finishes the jobs of single queues and of several."""

    name = "staged"
    effect = "committed Spark jobs whose driver died are not finished"
    common = SEVERAL.place

    def __init__(self) -> None:
        self._rotation = Rotation[tuple[JobKeys, bytes]](lambda due: (due[0].place, due[1]))

    @property
    def pause(self) -> float:
        return 0.0 if self._rotation.unfinished else super().pause

    def turn(self, survey: Survey) -> Steps[int]:
        """Work on the due jobs for a short time; return how many messages became visible. The rest waits."""
        attempts, moved = survey.attempts, 0
        due: list[tuple[JobKeys, bytes]] = []
        for page in pages((yield from survey.having(self.name, lambda home: home.jobs, survey.homes))):
            due += [(home, job) for home, jobs in (yield from attempts.together(self.name, page, _due)) for job in jobs]
        for home, job in self._rotation.turn(due):
            # One by one: an unreadable manifest must not hold up the others. Its parts may lie elsewhere.
            steps = finish_due(home, [job], ROLLS)
            moved += yield from attempts.of_queue(self.name, home, steps, 0, repr(job), other_server=True)
        if moved:
            log.info("made visible=%d messages of committed jobs", moved)
        return moved


def _due(homes: Sequence[JobKeys]) -> Steps[list[list[bytes]]]:
    now = yield ops.server_time()
    names: list[list[bytes]] = yield [due_jobs(home, now) for home in homes]
    return names
