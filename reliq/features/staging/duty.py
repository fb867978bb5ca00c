"""Staged jobs with a dead leader: committed ones are rolled forward, others are removed after their time limit."""

import logging
import time
from collections.abc import Sequence

from reliq import ops
from reliq.features.staging.steps import due_jobs, finish_due
from reliq.model.keys import SEVERAL, JobKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey, pages

log = logging.getLogger("reliq.monitor")

ROLLS = 100  #: chunks (reliq.ops.chunks) per job and turn: the monitor's other duties must not wait long
_A_TURN = 0.1  #: seconds after which a turn begins no further job


class StagedJobs(Duty[int]):
    """Finishes the jobs of single queues and of several."""

    name = "staged"
    effect = "committed Spark jobs whose driver died are not finished"
    common = SEVERAL.place

    def __init__(self) -> None:
        self._latest = ("", b"")  #: place and name of the job that had its turn last
        self._unfinished = False  #: whether other jobs have had no turn yet

    @property
    def pause(self) -> float:
        return 0.0 if self._unfinished else super().pause

    def turn(self, survey: Survey) -> Steps[int]:
        """Work on the due jobs for a short time; return how many messages became visible. The rest waits."""
        attempts, moved, self._unfinished = survey.attempts, 0, False
        due: list[tuple[JobKeys, bytes]] = []
        for page in pages((yield from survey.having(self.name, lambda home: home.jobs, survey.homes))):
            due += [(home, job) for home, jobs in (yield from attempts.together(self.name, page, _due)) for job in jobs]
        first = next((at for at, (home, job) in enumerate(due, 1) if (home.place, job) == self._latest), 0)
        until = time.monotonic() + _A_TURN
        for place, (home, job) in enumerate(due[first:] + due[:first], 1):
            # One by one: an unreadable manifest must not hold up the others. Its parts may lie elsewhere.
            steps = finish_due(home, [job], ROLLS)
            moved += yield from attempts.of_queue(self.name, home, steps, 0, repr(job), elsewhere=True)
            self._latest = home.place, job
            if time.monotonic() >= until:
                self._unfinished = moved > 0 and place < len(due)
                break
        if moved:
            log.info("made visible=%d messages of committed jobs", moved)
        return moved


def _due(homes: Sequence[JobKeys]) -> Steps[list[list[bytes]]]:
    now = yield ops.server_time()
    names: list[list[bytes]] = yield [due_jobs(home, now) for home in homes]
    return names
