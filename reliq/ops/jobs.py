"""The record of a staged job: what it says of the job's state."""

from dataclasses import dataclass
from enum import StrEnum

from reliq.model.keys import JobKeys
from reliq.ops.request import Op
from reliq.ops.schema import Job


class JobState(StrEnum):
    """The state of a staged job. An aborted job is forgotten after a while."""

    OPEN = "open"
    COMMITTED = "committed"  #: its parts are being rolled forward
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A staged job. `state`: a JobState, empty without such a job. `messages`: how many it has committed.

    `opened`: ms since the epoch. `staged`: messages that were staged, also by attempts that are not committed.
    `rolled`: those that became visible.
    """

    state: str
    run: str
    messages: int
    opened: int = 0
    staged: int = 0
    rolled: int = 0

    @property
    def committed(self) -> bool:
        return self.state in (JobState.COMMITTED, JobState.DONE)


def job_record(home: JobKeys, job: str) -> Op[JobRecord]:
    fields = (Job.STATE, Job.RUN, Job.MESSAGES, Job.OPENED, Job.STAGED, Job.ROLLED)
    return Op(("HMGET", home.job(job), *fields), _read_job)


def _read_job(reply: list[bytes | None]) -> JobRecord:
    state, run, *numbers = reply
    return JobRecord((state or b"").decode(), (run or b"").decode(), *(int(number or 0) for number in numbers))
