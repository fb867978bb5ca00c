"""The batch writer: each task attempt stages its own parts, the driver's commit makes the approved ones visible."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from reliq import ops
from reliq.errors import InvalidSetting, ReliqError
from reliq.protocol import staging
from reliq.protocol.staging import Job, Part, PartWriter
from reliq.spark.options import JOB_REMEMBERED, WriteOptions
from reliq.spark.rows import Rows, check_schema
from reliq.spark.targets import Targets, column_of, targets
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_ROLLERS = 2

log = logging.getLogger("reliq.spark")


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The parts that one task attempt has staged, with the job; `unroutable`: rows that matched no binding."""

    job: str
    run: str
    parts: tuple[Part, ...] = ()
    unroutable: int = 0
    stream: str = ""


def check_write(options: WriteOptions, schema: StructType, overwrite: bool) -> str:
    """Check a write on the driver; return the column that routes the rows, if any. Raises InvalidSetting."""
    if overwrite:
        raise InvalidSetting("mode overwrite would remove what is in the queue: use append, or purge the queue before")
    check_schema(schema)
    return column_of(schema, options.queue, options.mandatory)


def stage_rows(
    options: WriteOptions, where: Targets, job: Job, prefix: str, batches: Iterator["RecordBatch"], stream: str = ""
) -> Staged:
    """Stage the rows of this task; the id of a row is made of `prefix` and its number."""
    partition = task().partitionId()
    rows = Rows(f"{prefix}-{partition}", partition, options.max_body, where, options.trace)
    writers: dict[str, PartWriter] = {}
    store = options.connection.store()
    try:
        for batch in batches:
            for queue, chunks in rows.chunks(batch):
                if queue not in writers:
                    writers[queue] = PartWriter(job, queue, str(partition))
                store.run(writers[queue].add(chunks))
    finally:
        store.close()
    return Staged(job.name, job.run, tuple(writer.part for writer in writers.values()), rows.unroutable, stream)


def task() -> TaskContext:
    """Return the current task; raises InvalidSetting outside of one."""
    context = TaskContext.get()
    if context is None:
        raise InvalidSetting("rows are written by Spark tasks only")
    return context


def commit(store: Store, job: Job, every: Sequence[Staged], stream: str = "", epoch: int = 0) -> None:
    """Commit and roll forward. If rolling fails, the job is committed nevertheless: the monitor continues."""
    parts = [part for staged in every for part in staged.parts]
    answer = store.run(staging.commit(job, parts, stream, epoch))
    if answer == "repeated":
        return
    if answer == "committed":
        count_unroutable(store, job, every)
    try:
        with ThreadPoolExecutor(_ROLLERS) as rollers:
            list(rollers.map(lambda some: store.run(staging.roll_parts(job, some)), _shares(parts)))
        store.run(staging.roll_forward(job))
    except ReliqError as error:
        log.warning("job %s is committed, a monitor will make the rest of it visible: %s", job.name, error)


def count_unroutable(store: Store, job: Job, every: Sequence[Staged]) -> None:
    """Log and count the rows that matched no binding."""
    unroutable = sum(staged.unroutable for staged in every)
    if unroutable:
        log.warning("job %s: no queue is bound to the topic of %d rows; they went nowhere", job.name, unroutable)
        store.call(ops.count_unroutable(unroutable))


def _shares(parts: Sequence[Part]) -> list[Sequence[Part]]:
    """Split the parts evenly between the rollers: while Redis moves a chunk of one, the other reads its next."""
    return [parts[first::_ROLLERS] for first in range(_ROLLERS)]


class ReliqWriter(DataSourceArrowWriter):
    """The writer: created on the driver, where it opens, commits or aborts the job; copied to every task."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        column = check_write(options, schema, overwrite)
        self._options = options
        store = options.connection.store()
        try:
            self._targets = store.run(targets(options.queue, column, options.mandatory))
            self._job = _job_of(options, self._targets)
            self._write = store.run(staging.open_job(self._job))
            if not self._write:
                store.run(staging.finish_due(self._job.home, [self._job.name.encode()]))
                log.warning("job %s was committed before: nothing is written again", self._job.name)
        finally:
            store.close()

    def write(self, iterator: Iterator["RecordBatch"]) -> Staged:
        job = self._job
        if not self._write:
            return Staged(job.name, job.run)
        return stage_rows(self._options, self._targets, job, job.name, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._write:
            return
        store = self._options.connection.store()
        try:
            commit(store, self._job, [message for message in messages if isinstance(message, Staged)])
        finally:
            store.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._write:
            return
        store = self._options.connection.store()
        try:
            store.run(staging.abort(self._job))
        finally:
            store.close()


def _job_of(options: WriteOptions, where: Targets) -> Job:
    if options.job is None:
        return Job(where.home, time_limit=options.time_limit)
    return Job(where.home, options.job, time_limit=options.time_limit, remembered=JOB_REMEMBERED)
