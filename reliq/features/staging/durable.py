"""Durability of a job: its leader reports success once replicas, or the disk, have what it has committed.

Replication is one stream in order: a replica that has the commit has all that was staged before it on the same server.
"""

from collections.abc import Collection, Sequence
from typing import Any

from reliq import ops
from reliq.errors import DurabilityUnavailable, OutcomeUnknown, ReliqError
from reliq.features.staging import ops as own
from reliq.features.staging.steps import Job, Part, Turn, commit_of
from reliq.model.keys import JobKeys, QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.schema import Counter
from reliq.protocol.durability import MEMORY, Durability, check_possible, durability


def wanted_for(queues: Collection[str], given: str | None) -> Steps[Durability]:
    """Return the durability that is given, else the strongest that one of the queues has; it is possible."""
    if given is not None:
        wanted = durability(given)
    else:
        known = (yield [ops.introduction(QueueKeys(queue)) for queue in sorted(queues)]) if queues else ()
        each = (durability(one.durability) for one in known if one.durability)
        wanted = max(each, key=lambda one: (one.replicas, one.disks), default=MEMORY)
    yield from check_possible(wanted)
    return wanted


def confirm_parts(job: Job, parts: Sequence[Part], wanted: Durability) -> Steps[None]:
    """Wait for the parts in other slots than the job's record, which may be on other nodes, before it is committed."""
    queues = {part.queue: part.staged.keys for part in parts if part.staged.apart(job.home)} if wanted.waits else {}
    for queue, keys in queues.items():
        _, have = yield [ops.count(keys, Counter.CONFIRMS), wanted.wait()]
        if not wanted.reached(have):
            missed = f"durability {wanted.name} was not reached for queue {queue}"
            raise DurabilityUnavailable(f"job {job.name}: {missed}; nothing becomes visible")


def check_now(home: JobKeys, queue: str | None, given: str | None) -> Steps[None]:
    """Raise DurabilityUnavailable, before anything is written, if the server cannot do it or replicas are missing.

    `queue`: that of all rows; None: they say it themselves, and only what is given is known.
    """
    wanted = yield from wanted_for([queue] if queue else [], given)
    if not wanted.replicas:
        return
    _, have = yield [own.jobs_first_due(home, 1), wanted.wait()]
    if not wanted.reached(have):
        raise DurabilityUnavailable(f"durability {wanted.name}: {have} replicas answer; this run has written nothing")


def confirm_again(job: Job, turn: Turn | None, queue: str | None, given: str | None, again: str) -> Steps[None]:
    """Wait until an earlier run's commit has the durability that is given, else the one that it was to have.

    `queue`: that of all rows, if there is one. What an earlier version of reliq has committed is to have that of it.
    """
    noted = yield commit_of(job, turn)
    wanted = yield from wanted_for([queue] if queue else [], given or noted or None)
    yield from confirm_commit(job, wanted, turn, again)


def confirm_commit(job: Job, wanted: Durability, turn: Turn | None = None, again: str = "") -> Steps[None]:
    """Wait until a commit has the wanted durability; raises OutcomeUnknown if that is not certain.

    `turn`: that it has taken; of one that was repeated there is no other record. `again`: how to ask another time.
    """
    if not wanted.waits:
        return
    what = turn or f"job {job.name}"
    question: list[Op[Any]] = [
        ops.job_record(job.home, job.name),
        commit_of(job, turn),
        own.count_rolled(job.home, job.name, 0),  # a write, for WAIT to wait for
    ]
    try:
        record, committed, _, have = yield [*question, wanted.wait()]
    except ReliqError as error:
        doubt = f"{what} is committed, but durability {wanted.name} could not be confirmed: {error}{again}"
        raise OutcomeUnknown(doubt) from None
    if not record.state:
        yield own.forget_count(job.home, job.name)
    if committed is None:
        raise OutcomeUnknown(f"{what}: the server that answers now does not know its commit{again}")
    if not wanted.reached(have):
        raise OutcomeUnknown(f"{what} is committed, but durability {wanted.name} was not reached in time{again}")
