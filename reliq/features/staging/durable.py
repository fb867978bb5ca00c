"""Durability of a job: its leader reports success once replicas, or the disk, have what it has committed.

Replication is one stream in order: a replica that has the commit has all that was staged before it on the same server.
"""

from collections.abc import Collection, Sequence
from typing import Any

from reliq import ops
from reliq.errors import DurabilityUnavailable, OutcomeUnknown, ReliqError
from reliq.features.staging import ops as own
from reliq.features.staging.steps import Job, Part
from reliq.model.keys import QueueKeys
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


def confirm_commit(job: Job, wanted: Durability) -> Steps[None]:
    """Wait until a commit has the wanted durability; raises OutcomeUnknown if that is not certain."""
    if not wanted.waits:
        return
    again = "; run it again with its name: it adds nothing if it is committed"
    question: list[Op[Any]] = [ops.job_record(job.home, job.name), own.count_rolled(job.home, job.name, 0)]
    try:
        record, _, have = yield [*question, wanted.wait()]
    except ReliqError as error:
        doubt = f"job {job.name} is committed, but durability {wanted.name} could not be confirmed: {error}{again}"
        raise OutcomeUnknown(doubt) from None
    if not record.state:
        yield own.forget_count(job.home, job.name)
    if not record.committed:
        raise OutcomeUnknown(f"job {job.name}: the server that answers now does not know its commit{again}")
    if not wanted.reached(have):
        raise OutcomeUnknown(
            f"job {job.name} is committed, but durability {wanted.name} was not reached in time{again}"
        )
