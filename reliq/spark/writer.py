"""The batch writer: each task attempt stages a part of its own, the driver's commit makes the approved ones visible."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from reliq import staging
from reliq.errors import InvalidSetting, ReliqError
from reliq.spark.options import JOB_REMEMBERED, WriteOptions
from reliq.spark.rows import Rows, check_schema
from reliq.staging import Job, Part, PartWriter
from reliq.store import Store

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger("reliq.spark")


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What one task attempt has staged, and in which job."""

    job: str
    run: str
    part: Part
    stream: str = ""


def check_write(schema: StructType, overwrite: bool) -> None:
    """On the driver, before the first task; raises InvalidSetting."""
    if overwrite:
        raise InvalidSetting("mode overwrite would remove what is in the queue: use append, or purge the queue before")
    check_schema(schema)


def stage_rows(options: WriteOptions, job: Job, prefix: str, batches: Iterator["RecordBatch"]) -> Part:
    """Stage the rows of this task; `prefix` and the row's number make its id."""
    partition = task().partitionId()
    rows = Rows(f"{prefix}-{partition}", partition, options.max_body)
    writer = PartWriter(job, str(partition))
    store = options.connection.store()
    try:
        for batch in batches:
            store.run(writer.add(rows.entries(batch)))
    finally:
        store.close()
    return writer.part


def task() -> TaskContext:
    """The task that runs here."""
    context = TaskContext.get()
    if context is None:
        raise InvalidSetting("rows are written by Spark tasks only")
    return context


def make_visible(store: Store, job: Job) -> None:
    """Roll a committed job forward. Where that fails the job is committed all the same: the monitor goes on with it."""
    try:
        store.run(staging.roll_forward(job))
    except ReliqError as error:
        log.warning("job %s is committed, a monitor will make the rest of it visible: %s", job.name, error)


class ReliqWriter(DataSourceArrowWriter):
    """Made on the driver, where it opens the job; copied to every task; asked to commit or abort on the driver."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        check_write(schema, overwrite)
        self._options = options
        self._job = _job_of(options)
        store = options.connection.store()
        try:
            self._write = store.run(staging.open_job(self._job))
            if not self._write:
                store.run(staging.finish_due(options.keys, [self._job.name.encode()]))
                log.warning("job %s was committed before: nothing is written again", self._job.name)
        finally:
            store.close()

    def write(self, iterator: Iterator["RecordBatch"]) -> Staged:
        job = self._job
        if not self._write:
            return Staged(job.name, job.run, Part("", 0, 0))
        return Staged(job.name, job.run, stage_rows(self._options, job, job.name, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._write:
            return
        parts = [message.part for message in messages if isinstance(message, Staged)]
        store = self._options.connection.store()
        try:
            store.run(staging.commit(self._job, parts))
            make_visible(store, self._job)
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


def _job_of(options: WriteOptions) -> Job:
    if options.job is None:
        return Job(options.keys, time_limit=options.time_limit)
    return Job(options.keys, options.job, time_limit=options.time_limit, remembered=JOB_REMEMBERED)
