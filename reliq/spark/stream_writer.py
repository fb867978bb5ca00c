"""The stream writer: a staged job for every micro-batch, and a ledger of the epochs that each query has committed."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from reliq.errors import InvalidSetting
from reliq.protocol import staging
from reliq.protocol.staging import Job, new_token
from reliq.spark.options import WriteOptions
from reliq.spark.targets import targets
from reliq.spark.writer import Staged, check_write, commit, count_unroutable, stage_rows, task

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Local properties that Spark's micro-batch execution sets; a task has no other way to learn them.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class ReliqStreamWriter(DataSourceStreamArrowWriter):
    """The stream writer. Spark creates one for the tasks of a micro-batch and another for its commit."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        column = check_write(options, schema, overwrite)
        if options.job is not None:
            raise InvalidSetting("option job is for batch writes: a stream knows its micro-batches by its checkpoint")
        self._options = options
        self._run = new_token()
        store = options.connection.store()
        try:
            self._targets = store.run(targets(options.queue, column, options.mandatory))
        finally:
            store.close()

    def write(self, iterator: Iterator["RecordBatch"]) -> Staged:
        query, batch = (task().getLocalProperty(name) for name in (_QUERY, _BATCH))
        if not query or not batch:
            raise InvalidSetting("this Spark does not tell its tasks the query and the micro-batch they belong to")
        job = Job(self._targets.home, f"{query}.{batch}.{self._run}", self._run, self._options.time_limit)
        return stage_rows(self._options, self._targets, job, f"{query}-{batch}", iterator, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return
        job, query = self._job_of(staged[0]), staged[0].stream
        store = self._options.connection.store()
        try:
            if any(one.parts for one in staged):
                commit(store, job, staged, query, batchId)
            else:  # no rows were staged, so no task has opened the job
                count_unroutable(store, job, staged)
            store.run(staging.abort_others(job, f"{query}."))
        finally:
            store.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return  # the query is unknown here: its next commit removes the job, or the time limit does
        store = self._options.connection.store()
        try:
            store.run(staging.abort(self._job_of(staged[0])))
        finally:
            store.close()

    def _job_of(self, staged: Staged) -> Job:
        return Job(self._targets.home, staged.job, staged.run, self._options.time_limit)
