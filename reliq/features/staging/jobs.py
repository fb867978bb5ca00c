"""Staged jobs as an operator sees them: what is open, committed or being removed, and how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reliq import ops
from reliq.errors import ReliqError
from reliq.features.staging import ops as own
from reliq.features.staging.model import Ended, Written
from reliq.features.staging.steps import Job, abort
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, check_job
from reliq.ops import JobState, Steps
from reliq.protocol.partial_reads import or_unseen
from reliq.runtime.looking import is_away, missing_now

T = TypeVar("T")
_Homes = Sequence[tuple[str, JobKeys]]  #: of jobs: each behind its queue, '' for those of several
_MOST = 100  #: unfinished jobs of a queue that are read
OF_QUEUE = ("messages", "deduplicated", "bytes")
ENDED = 100  #: jobs of a queue that have ended and are known
ABORTABLE = JobState.OPEN


@dataclass(frozen=True, slots=True)
class StagedJob:
    """An unfinished job. `queue`: the queue with its record; empty for a job of several queues.

    `staged`: messages staged so far, also by attempts that do not count. `messages`: those it has committed; 0 while it
    is open. `rolled`: those of them that are visible. `age`: seconds since it was opened.
    """

    queue: str
    name: str
    state: str
    staged: int
    messages: int
    rolled: int
    age: float

    @property
    def invisible(self) -> int:
        """The messages that are staged and not yet visible."""
        return self.staged if self.state == JobState.OPEN else max(0, self.messages - self.rolled)


def read_jobs(queues: Sequence[str], several: bool = True) -> Steps[list[StagedJob]]:
    """Read the unfinished jobs of these queues and, with `several`, those of several queues."""
    return (yield from _of_each(queues, several, _jobs_of))


def _of_each(queues: Sequence[str], several: bool, read: Callable[[_Homes], Steps[list[T]]]) -> Steps[list[T]]:
    """Read of all these queues at once; for an operator, of each alone where a part of Redis is away."""
    homes: list[tuple[str, JobKeys]] = [(queue, QueueKeys(queue)) for queue in queues]
    if several:
        homes.append(("", SEVERAL))
    try:
        return (yield from read(homes))
    except ReliqError as error:
        if missing_now() is None or not is_away(error):
            raise
        found: list[T] = []
        for queue, home in homes:
            what = f"the jobs of queue {queue}" if queue else "the jobs of several queues"
            found += yield from or_unseen(what, read([(queue, home)]), [])
        return found


def _jobs_of(homes: _Homes) -> Steps[list[StagedJob]]:
    now, *found = yield [ops.server_time(), *(own.jobs_first_due(home, _MOST) for _, home in homes)]
    named = [(queue, home, name) for (queue, home), names in zip(homes, found, strict=True) for name in names]
    records = (yield [ops.job_record(home, name) for _, home, name in named]) if named else []
    return [
        StagedJob(queue, name, record.state, record.staged, record.messages, record.rolled, _age(record, now))
        for (queue, _, name), record in zip(named, records, strict=True)
        if record.state
    ]


def read_ended(queues: Sequence[str], several: bool = True, count: int = ENDED) -> Steps[list[tuple[str, Ended]]]:
    """Return the latest jobs of these queues that have ended, each with its queue, and those of several queues."""

    def ended(homes: _Homes) -> Steps[list[tuple[str, Ended]]]:
        found = (yield [own.ended_jobs(home, count) for _, home in homes]) if homes else []
        return [(queue, job) for (queue, _), jobs in zip(homes, found, strict=True) for job in jobs]

    pairs = yield from _of_each(queues, several, ended)
    return sorted(pairs, key=lambda pair: pair[1].ended, reverse=True)


def counts_of(job: Ended | Written) -> dict[str, Any]:
    """Return what a job has done: rows by their fate, messages and bytes, and those of each queue as `queues`."""
    queues = {
        queue: {
            "messages": share.messages - job.deduplicated.get(queue, 0),
            "deduplicated": job.deduplicated.get(queue, 0),
            "bytes": share.bytes,
        }
        for queue, share in job.about.queues.items()
    }
    sums = {name: sum(one[name] for one in queues.values()) for name in OF_QUEUE}
    rows = {name: getattr(job.about, name) for name in ("rows", "skipped", "dead", "unroutable")}
    return {**rows, **sums, "queues": queues}


def _age(record: ops.JobRecord, now: int) -> float:
    return max(0.0, (now - record.opened) / 1000) if record.opened else 0.0


def abort_job(queue: str, name: str) -> Steps[bool]:
    """Abort an open job, also while its driver runs; return False if it is decided, or does not exist.

    Its tasks find it closed, and its driver fails.
    """
    home = QueueKeys(queue) if queue else SEVERAL
    record: ops.JobRecord = yield ops.job_record(home, check_job(name))
    if record.state != ABORTABLE:
        return False
    aborted = yield from abort(Job(home, name, record.run))
    return bool(aborted)
