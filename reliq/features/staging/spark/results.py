"""Results of writes: that of a session's latest one, and a DataFrame of jobs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from reliq.features.staging import ops as own
from reliq.features.staging.jobs import OF_QUEUE, StagedJob, counts_of, read_ended, read_jobs
from reliq.features.staging.model import Ended, Written
from reliq.model.keys import SEVERAL
from reliq.ops import Steps
from reliq.protocol.partial_reads import every_queue
from reliq.spark.columns import COUNT, TEXT, TIME, Kind, schemas_of
from reliq.spark.options import JobsOptions
from reliq.spark.workers import in_worker

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_COUNTS = ("rows", "messages", "skipped", "dead", "deduplicated", "unroutable", "bytes")
_OF_QUEUE: Kind = (
    spark.StructType([spark.StructField(name, COUNT[0]) for name in OF_QUEUE]),
    pa.struct([(name, COUNT[1]) for name in OF_QUEUE]),
)
_COLUMNS: dict[str, Kind] = {
    **dict.fromkeys(("job", "queue", "state"), TEXT),
    **dict.fromkeys(("opened_at", "committed_at", "ended_at"), TIME),
    **dict.fromkeys(_COUNTS, COUNT),
    "queues": (spark.MapType(TEXT[0], _OF_QUEUE[0]), pa.map_(TEXT[1], _OF_QUEUE[1])),
}
SCHEMA, _ARROW = schemas_of(_COLUMNS)


@dataclass(frozen=True)
class WriteResult:
    """What a write has done. All but `queues` are numbers of rows, messages or bytes.

    `committed_before`: its job was committed earlier, so it has added nothing. `rows`: of the DataFrame. `messages`:
    enqueued, in all queues. `skipped`, `dead`: rows that could not be sent. `deduplicated`: messages left out for their
    dedup key. `unroutable`: rows that no queue is bound to. `queues`: messages, deduplicated and bytes of each.
    `complete`: all messages are visible; else a monitor goes on, and `deduplicated` is not final.
    """

    job: str
    committed_before: bool
    rows: int
    messages: int
    skipped: int
    dead: int
    deduplicated: int
    unroutable: int
    bytes: int
    queues: Mapping[str, Mapping[str, int]]
    complete: bool

    @classmethod
    def of(cls, written: Written) -> "WriteResult":
        """Return what is noted, with its sums."""
        counts = counts_of(written)
        return cls(written.job, written.before, complete=written.complete, **counts)


class JobsReader(DataSourceReader):
    """Reads the unfinished jobs, and the latest ones that have ended."""

    def __init__(self, options: JobsOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        with in_worker():
            store = self._options.connection.store()
            try:
                rows = store.run(_rows(self._options.queue))
            finally:
                store.close()
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def _rows(queue: str) -> Steps[list[dict[str, Any]]]:
    queues = [queue] if queue else (yield from every_queue())
    rows = [_of_unfinished(job) for job in (yield from read_jobs(queues, several=not queue))]
    rows += [_of_ended(one, job) for one, job in (yield from read_ended(queues, several=not queue))]
    return rows


def _of_unfinished(job: StagedJob) -> dict[str, Any]:
    return {"job": job.name, "queue": job.queue or None, "state": job.state, "messages": job.messages or None}


def _of_ended(queue: str, job: Ended) -> dict[str, Any]:
    counts = counts_of(job)
    times = {"opened_at": job.opened, "committed_at": job.committed, "ended_at": job.ended}
    return {
        "job": job.name, "queue": queue or None, "state": "done",
        **{name: datetime.fromtimestamp(ms / 1000, UTC) for name, ms in times.items()},
        **counts, "queues": list(counts["queues"].items()),
    }  # fmt: skip


def latest(session: str) -> Steps[WriteResult | None]:
    """Return the result of a session's latest write; None if it has written nothing, or long ago."""
    written: Written | None = yield own.latest_write(SEVERAL, session)
    return WriteResult.of(written) if written is not None else None
