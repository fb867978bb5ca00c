"""What tasks tell the driver, and what a write tells the user: rows by their fate, messages and bytes by queue."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import WriterCommitMessage

from reliq.errors import JobClosed, ReliqError
from reliq.features.staging import ops as own
from reliq.features.staging.model import Share, Summary, Written
from reliq.features.staging.steps import Job, Part, Turn
from reliq.model.keys import SEVERAL, logical_name
from reliq.spark.options import JOB_REMEMBERED, WriteOptions
from reliq.spark.overridden import Overridden
from reliq.spark.refused import Tally
from reliq.spark.rules import Rules
from reliq.transport.store import Store

log = logging.getLogger("reliq.spark")


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The parts that one task attempt has staged, with the job.

    `unroutable`: rows that matched no binding. `tally`: rows that could not be sent. `failure`: why the task gave up;
    it is reported here, because Spark shows the error of a task below a dozen lines of traceback, after four attempts.
    `overridden`: rows whose column `queue` names another queue than the option.
    """

    job: str
    run: str
    parts: tuple[Part, ...] = ()
    rows: int = 0
    unroutable: int = 0
    tally: Tally = field(default_factory=Tally)
    stream: str = ""
    failure: str = ""
    overridden: Overridden = field(default_factory=Overridden)


def summary_of(every: Sequence[Staged], rules: Rules) -> Summary:
    """Return what these tasks have staged; dead letters are no messages of their queue."""
    refused = sum(staged.tally.reasons.total() for staged in every)
    dead = refused if rules.invalid == "dead" else 0
    messages, size = Counter[str](), Counter[str]()
    for part in (part for staged in every for part in staged.parts):
        queue = logical_name(part.queue)
        messages[queue] += part.messages
        size[queue] += part.bytes
    if dead:
        messages[rules.dead_queue] -= dead
    return Summary(
        rows=sum(staged.rows for staged in every),
        skipped=refused - dead,
        dead=dead,
        unroutable=sum(staged.unroutable for staged in every),
        queues={queue: Share(messages[queue], size[queue]) for queue in sorted(size)},
    )


def again(options: WriteOptions, turn: Turn | None) -> str:
    """Return how a user asks another time whether a write is committed, as the end of a sentence."""
    adds_nothing = "adds nothing if it is committed"
    if turn is not None and not turn.versions:
        return f"; start the query again from its checkpoint: the replay {adds_nothing}"
    if turn is None and options.job is None:
        return "; it has no name (option job) by which it could run again without writing its rows twice"
    return f"; run it again with its {'txnAppId and txnVersion' if turn else 'name'}: it {adds_nothing}"


def note_before(store: Store, job: Job, options: WriteOptions, turn: Turn | None) -> None:
    """Say that a write was committed before, so that this one adds nothing; raises JobClosed if that is an error."""
    what = f"{turn or f'job {job.name}'} was committed before"
    if options.if_committed == "fail":
        raise JobClosed(f'{what}: nothing is written again; option("ifCommitted", "skip") takes that for success')
    log.warning("%s: nothing is written again", what)
    note(store, options.session, Written(job.name, options.queue or "", before=True))


def note(store: Store, session: str, written: Written) -> None:
    """Note the latest write of a session, for `reliq.spark.last_write`; without one its job is done all the same."""
    if not session:
        return
    try:
        store.call(own.note_write(SEVERAL, session, written, JOB_REMEMBERED))
    except ReliqError as error:
        log.warning("job %s is committed, but its result cannot be noted: %s", written.job, error)
