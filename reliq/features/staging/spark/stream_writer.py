"""The stream writer: a staged job for every micro-batch, and a ledger of the epochs that each query has committed."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from reliq.errors import InvalidSetting
from reliq.features.staging import durable
from reliq.features.staging import steps as staging
from reliq.features.staging.spark.writer import (
    aborting,
    about_full,
    check_write,
    commit,
    count_left_out,
    raise_failure,
    stage_rows,
    task,
)
from reliq.features.staging.spark.written import Staged
from reliq.features.staging.steps import Job, Turn, new_token
from reliq.spark.options import WriteOptions
from reliq.spark.targets import targets
from reliq.spark.workers import in_worker

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Local properties that Spark's micro-batch execution sets; a task has no other way to learn them.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
# Every task of a micro-batch says what it has staged, also one without a row; a batch without a task has one None.
_NOTHING_WRITTEN = (
    "Spark gave this sink no rows to write, as with trigger(continuous=...), which Python sinks do not have: use "
    'trigger(processingTime="1 second")'
)


class ReliqStreamWriter(DataSourceStreamArrowWriter):
    """The stream writer. Spark creates one for the tasks of a micro-batch and another for its commit."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidSetting(
                'a stream is written with outputMode("append"); write an aggregation in foreachBatch, with '
                "the options of reliq.spark.transaction"
            )
        self._columns, column = check_write(options, schema, overwrite)
        if options.job is not None:
            raise InvalidSetting("option job is for batch writes: a stream knows its micro-batches by its checkpoint")
        if options.transaction is not None:
            raise InvalidSetting("option txnAppId is for batch writes, such as those of foreachBatch")
        if options.on_handled is not None:
            raise InvalidSetting("option onHandled is for batch writes: a stream has no last row")
        self._options = replace(options, if_committed="skip")  # a replay is no error
        self._run = new_token()
        with closing(options.connection.store()) as store:
            self._targets = store.run(targets(options.queue, column, options.mandatory))
            store.run(durable.check_now(self._targets.home, options.queue, options.durability))

    def write(self, iterator: Iterator["RecordBatch"]) -> Staged:
        query, batch = (task().getLocalProperty(name) for name in (_QUERY, _BATCH))
        if not query or not batch:
            raise InvalidSetting("this Spark does not tell its tasks the query and the micro-batch they belong to")
        job = Job(self._targets.home, f"{query}.{batch}.{self._run}", self._run, self._options.time_limit)
        with in_worker(), about_full(job, self._targets):
            return stage_rows(self._options, self._columns, self._targets, job, f"{query}-{batch}", iterator, query)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        staged = [message for message in messages if isinstance(message, Staged)]
        if len(messages) > 1 and not staged:
            with in_worker():
                raise InvalidSetting(_NOTHING_WRITTEN)
        if not staged:
            return
        job, query = self._job_of(staged[0]), staged[0].stream
        with in_worker(), closing(self._options.connection.store()) as store:
            raise_failure(staged)
            if any(one.parts for one in staged):
                commit(store, job, staged, self._options, Turn(query, batchId))
            else:  # no rows were staged, so no task has opened the job
                count_left_out(store, job, staged, self._options.rules)
            store.run(staging.abort_others(job, f"{query}."))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return  # the query is unknown here: its next commit removes the job, or the time limit does
        job = self._job_of(staged[0])
        with aborting(job), closing(self._options.connection.store()) as store:
            store.run(staging.abort(job))

    def _job_of(self, staged: Staged) -> Job:
        return Job(self._targets.home, staged.job, staged.run, self._options.time_limit)
