"""The batch writer: each task attempt stages its own parts, the driver's commit makes the approved ones visible."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from reliq import ops
from reliq.errors import InvalidMessage, InvalidSetting, JobClosed, QueueFull, ReliqError
from reliq.features.staging import durable
from reliq.features.staging import ops as own
from reliq.features.staging import steps as staging
from reliq.features.staging.model import Written
from reliq.features.staging.spark.naming import id_prefix, job_name, of_transaction
from reliq.features.staging.spark.written import Staged, again, note, note_before, summary_of
from reliq.features.staging.steps import Job, Part, PartWriter, Turn
from reliq.model.keys import logical_name
from reliq.model.partitions import Layout
from reliq.protocol.features import JOB_ENDS
from reliq.spark.encoding import CLOCK, merged
from reliq.spark.options import JOB_REMEMBERED, WriteOptions
from reliq.spark.overridden import Overridden
from reliq.spark.refused import Tally
from reliq.spark.rows import Rows
from reliq.spark.rules import Rules
from reliq.spark.spread import Spread, read_layouts
from reliq.spark.targets import Targets, column_of, targets
from reliq.spark.watched import Watched, noted
from reliq.spark.workers import announce, in_worker, store_of
from reliq.spark.write_columns import WriteColumns, write_columns_of
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_ROLLERS = 2
_ROUTED_BYTES = 16 * 1024 * 1024  #: rows that are spread over queues at once: each queue's part is a call to Redis
_MANY_TASKS, _FEW_ROWS = 100, 1000  #: of a job that had better be coalesced
_ABOUT_INVALID = 'Leave such rows out, or choose option("invalid", "skip") or option("invalid", "dead")'

log = logging.getLogger("reliq.spark")


def check_write(options: WriteOptions, schema: StructType, overwrite: bool) -> tuple[WriteColumns, str]:
    """Check a write on the driver; return its columns, and the one that routes the rows if there is one.

    Raises InvalidSetting.
    """
    if overwrite:
        raise InvalidSetting("mode overwrite would remove what is in the queue: use append, or purge the queue before")
    columns = write_columns_of(schema, options.body, options.columns, options.queue)
    column = column_of(columns.options, options.queue, options.mandatory)
    if "key" in columns.options and options.rules.key_as == "both":
        log.warning(
            "column key is the ordering key of a message now, and in this version its header `key` too: choose "
            'option("keyAs", "order") or, for the header alone, option("keyAs", "header")'
        )
    return columns, column


def stage_rows(
    options: WriteOptions,
    columns: WriteColumns,
    where: Targets,
    job: Job,
    prefix: str,
    batches: Iterator["RecordBatch"],
    stream: str = "",
) -> Staged:
    """Stage the rows of this task; the id of a row is made of `prefix` and its number."""
    partition = task().partitionId()
    store = store_of(options.connection)
    store.run(CLOCK.ask())
    spread = Spread(lambda queue: _layout_of(queue, where, store), partition)
    rows = Rows(f"{prefix}-{partition}", partition, columns, options.rules, where, spread)
    writers: dict[str, PartWriter] = {}
    failure = ""
    batches = noted(batches, f"job {job.name}, partition {partition}")
    to_one = where.queue and where.layouts[where.queue].count == 1
    try:
        for batch in batches if to_one else merged(batches, _ROUTED_BYTES):
            for queue, chunks in rows.chunks(batch):
                if queue not in writers:
                    announce(options.connection, job.run, queue)
                    writers[queue] = PartWriter(job, queue, str(partition), announced=True)
                before = writers[queue].part.bytes
                store.run(writers[queue].add(chunks))
                if options.rate is not None:
                    time.sleep(store.run(staging.wait_for(job, writers[queue].part.bytes - before, options.rate)))
    except InvalidMessage as error:
        failure = f"{error}. {_ABOUT_INVALID}"
        store.run(staging.abort(job))  # the other tasks need not go on
    except JobClosed as error:
        failure = str(error)
    parts = tuple(writer.part for writer in writers.values())
    return Staged(job.name, job.run, parts, rows.row, rows.unroutable, rows.tally, stream, failure, rows.overridden)


def _layout_of(queue: str, where: Targets, store: Store) -> Layout:
    """Return the homes of a queue, as the driver read them; of one that a column names, as they are now."""
    known = where.layouts.get(queue)
    return known if known is not None else store.run(read_layouts({queue}))[queue]


@contextmanager
def about_full(job: Job, where: Targets) -> Iterator[None]:
    """Say for which job Redis has no memory, and what to do."""
    try:
        yield
    except QueueFull as error:
        of = f"queue {where.queue}" if where.queue else "several queues"
        raise QueueFull(
            f"job {job.name} for {of}: {error}. No row of it is visible: raise maxmemory, or wait until workers have "
            "made room, and write again"
        ) from None


@contextmanager
def aborting(job: Job) -> Iterator[None]:
    """Log why a job cannot be aborted: an error of the abort would hide the one for which it is, with Redis away."""
    try:
        yield
    except ReliqError as error:
        log.warning("job %s is not aborted, a monitor deletes its rows after its timeLimit: %s", job.name, error)


def raise_failure(every: Sequence[Staged]) -> None:
    """Raise why a task gave up: the row that cannot be sent, rather than that the job was closed for it."""
    failures = sorted((one.failure for one in every if one.failure), key=lambda text: _ABOUT_INVALID not in text)
    if failures:
        raise (InvalidMessage if _ABOUT_INVALID in failures[0] else JobClosed)(failures[0])


def task() -> TaskContext:
    """Return the current task; raises InvalidSetting outside of one."""
    context = TaskContext.get()
    if context is None:
        raise InvalidSetting("rows are written by Spark tasks only")
    return context


def commit(store: Store, job: Job, every: Sequence[Staged], options: WriteOptions, turn: Turn | None = None) -> None:
    """Commit and roll forward. If rolling fails, the job is committed nevertheless: the monitor continues."""
    parts = [part for staged in every for part in staged.parts]
    about = summary_of(every, options.rules)
    wanted = store.run(durable.wanted_for(about.queues, options.durability))
    store.run(durable.confirm_parts(job, parts, wanted))
    answer = store.run(staging.commit(job, parts, turn, about, wanted.name))
    store.run(durable.confirm_commit(job, wanted, turn, again(options, turn)))
    if answer == "repeated":
        note_before(store, job, options, turn)
        return
    if answer == "committed":
        count_left_out(store, job, every, options.rules)
        warn_of_overridden(every, options.queue or "")
    written = Written(job.name, options.queue or "", about=about)
    try:
        roll = _Roll(store, job, sum(part.messages for part in parts))
        with ThreadPoolExecutor(_ROLLERS) as rollers:
            list(rollers.map(roll, _shares(parts)))
        store.run(staging.roll_forward(job))
        written = msgspec.structs.replace(written, deduplicated=store.call(own.duplicates(job.home, job.name)))
    except ReliqError as error:
        written = msgspec.structs.replace(written, complete=False)
        log.warning("job %s is committed, a monitor will finish it: %s", job.name, error)
    note(store, options.session, written)


class _Roll:
    """Rolls shares of the parts forward, for several threads, and logs how far all of them are."""

    def __init__(self, store: Store, job: Job, messages: int) -> None:
        self._store, self._job = store, job
        self._done: dict[int, int] = {}
        self._watched = Watched(f"job {job.name}: %d of {messages} committed messages are visible")

    def __call__(self, parts: Sequence[Part]) -> None:
        def moved(done: int) -> None:
            self._done[id(parts)] = done
            self._watched.note(sum(self._done.values()))

        self._store.run(staging.roll_parts(self._job, parts, moved))


def count_left_out(store: Store, job: Job, every: Sequence[Staged], rules: Rules) -> None:
    """Log the rows that were not enqueued, and count those that matched no binding."""
    unroutable, tally = sum(staged.unroutable for staged in every), Tally()
    for staged in every:
        tally.merge(staged.tally)
    if unroutable:
        log.warning("job %s: no queue is bound to the topic of %d rows; they were dropped", job.name, unroutable)
        store.call(ops.count_unroutable(unroutable))
    if tally.reasons:
        where = f"are dead letters of queue {rules.dead_queue}" if rules.invalid == "dead" else "were skipped"
        log.warning("job %s: invalid rows %s: %s", job.name, where, tally)


def warn_of_overridden(every: Sequence[Staged], queue: str) -> None:
    """Log the rows that name another queue than the option."""
    found = sum((staged.overridden for staged in every), Overridden())
    if found.rows:
        log.warning(
            "job %s: column `queue` of %d rows names another queue, such as %r, but the option queue is for all rows: "
            "they went to %s. Leave the option out to send each row to the queue that it names; else drop the column",
            every[0].job, found.rows, found.queue, queue,
        )  # fmt: skip


def advise(every: Sequence[Staged]) -> None:
    """Log what helps a job of many small tasks: most of its time is what Spark needs for a task in Python."""
    tasks, rows = len(every), sum(staged.rows for staged in every)
    if tasks >= _MANY_TASKS and rows < tasks * _FEW_ROWS:
        log.warning(
            "job %s had %d tasks of about %d rows, and Spark needs longer for a task than for its rows: df.coalesce(n) "
            "before the write, with a few partitions for each core, is faster",
            every[0].job, tasks, rows // tasks,
        )  # fmt: skip


def _shares(parts: Sequence[Part]) -> list[Sequence[Part]]:
    """Split the parts evenly between the rollers: while Redis moves a chunk of one, the other reads its next."""
    return [parts[first::_ROLLERS] for first in range(_ROLLERS)]


class ReliqWriter(DataSourceArrowWriter):
    """The writer: created on the driver, where it opens, commits or aborts the job; copied to every task."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._columns, column = check_write(options, schema, overwrite)
        self._options = options
        self._write = False  #: whether no earlier run has committed it
        with closing(options.connection.store()) as store:
            self._targets = store.run(targets(options.queue, column, options.mandatory))
            self._job = _job_of(options, self._targets)
            self._turn = Turn(*options.transaction, versions=True) if options.transaction else None
            if store.call(staging.commit_of(self._job, self._turn)) is None:
                store.run(durable.check_now(self._job.home, options.queue, options.durability))
                with about_full(self._job, self._targets):
                    self._write = store.run(staging.open_job(self._job))
            if not self._write:
                store.run(staging.finish_due(self._job.home, [self._job.name.encode()]))
                how = again(options, self._turn)
                store.run(durable.confirm_again(self._job, self._turn, options.queue, options.durability, how))
                note_before(store, self._job, options, self._turn)
            elif options.on_handled is not None:
                if not JOB_ENDS:
                    raise InvalidSetting("option onHandled: this reliq has no batches")
                for end in JOB_ENDS:
                    batch = store.run(end.open(options.on_handled, options.job or self._job.name))
                    self._options = replace(options, rules=replace(options.rules, batch=batch))

    def write(self, iterator: Iterator["RecordBatch"]) -> Staged:
        job = self._job
        if not self._write:
            return Staged(job.name, job.run)
        with in_worker(), about_full(job, self._targets):
            named = self._options.transaction
            prefix = of_transaction(*named) if named else id_prefix(job.name)
            return stage_rows(self._options, self._columns, self._targets, job, prefix, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._write:
            return
        staged = [message for message in messages if isinstance(message, Staged)]
        with in_worker(), closing(self._options.connection.store()) as store:
            raise_failure(staged)
            job, queues = self._job, {logical_name(part.queue) for one in staged for part in one.parts}
            for end in JOB_ENDS if self._options.rules.batch else ():
                store.run(end.close(self._options.rules.batch, job.home, job.name, job.run, queues))
            commit(store, self._job, staged, self._options, self._turn)
            advise(staged)
            if self._options.transaction:  # its runs that died
                store.run(staging.abort_others(job, f"{of_transaction(*self._options.transaction)}."))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._write:
            return
        with aborting(self._job), closing(self._options.connection.store()) as store:
            store.run(staging.abort(self._job))
            for end in JOB_ENDS if self._options.rules.batch else ():
                store.run(end.abandon(self._options.rules.batch))


def _job_of(options: WriteOptions, where: Targets) -> Job:
    """Return a new run of the job. It is remembered where others ask later whether it was committed."""
    remembered = JOB_REMEMBERED if options.job is not None or options.on_handled is not None else staging.REMEMBERED
    name = run = staging.new_token()
    if options.job:
        name = job_name(where.home, options.application, options.job)
    elif options.transaction:  # the turn says whether it is written; a name of its own for each run
        name = f"{of_transaction(*options.transaction)}.{run}"
    return Job(where.home, name, run, options.time_limit, remembered)
