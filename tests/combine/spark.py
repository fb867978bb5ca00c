"""Spark's part of a story, as Spark calls it but without a JVM: a job that writes, and a stream that reads."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadMaxRows

import reliq.features.staging.spark.writer
from reliq.spark.columns import SCHEMA
from reliq.spark.source import ReliqDataSource

_TEXTS = pa.map_(pa.string(), pa.string())
_ONE = ReadMaxRows(1)  #: a message in each micro-batch, so that each is settled alone
#: By option: the column, its type, and what a value is there.
_COLUMNS: Mapping[str, tuple[str, pa.DataType, Any]] = {
    "id": ("id", pa.string(), str), "key": ("key", pa.string(), str),
    "priority": ("priority", pa.string(), str), "dedup_key": ("dedup_key", pa.string(), str),
    "delay": ("delay_ms", pa.int64(), lambda value: int(value * 1000)),
    "ttl": ("ttl_ms", pa.int64(), lambda value: int(value * 1000)),
    "headers": ("headers", _TEXTS, lambda value: list(value.items())),
}  # fmt: skip


def write(url: str, queue: str, rows: Sequence[tuple[bytes, Mapping[str, Any]]]) -> None:
    """Write bodies with options as one task of a job."""
    columns = {"value": pa.array([body for body, _ in rows], pa.binary())}
    for option, (name, kind, read) in _COLUMNS.items():
        if any(option in options for _, options in rows):
            values = [read(options[option]) if option in options else None for _, options in rows]
            columns[name] = pa.array(values, kind)
    assert {one for _, options in rows for one in options} <= {*_COLUMNS}
    batch = pa.RecordBatch.from_pydict(columns)
    source = ReliqDataSource({"queue": queue, "url": url, "keyAs": "order"})
    writer: Any = source.writer(from_arrow_schema(batch.schema), overwrite=False)
    with patch.object(reliq.features.staging.spark.writer, "task", lambda: SimpleNamespace(partitionId=lambda: 0)):
        staged = writer.write(iter([batch]))
    writer.commit([staged])


class Stream:
    """A query that reads a queue; a micro-batch is acked when the next one is asked for, or here at once."""

    settles_later, name = False, "w"

    def __init__(self, url: str, queue: str) -> None:
        self._source = ReliqDataSource({"queue": queue, "url": url})
        self._reader: Any = None
        self._at: dict[str, Any] | None = None  #: the offset in its checkpoint

    def take(self) -> list[str]:
        if self._reader is None:
            self._reader = self._source.streamReader(SCHEMA)
        start = self._at or self._reader.initialOffset()
        end = self._reader.latestOffset(start, _ONE)
        if end == start:
            return []
        self._at = end
        parts = self._reader.partitions(start, end)
        return [identity for part in parts for rows in self._reader.read(part) for identity in rows["id"].to_pylist()]

    def charge(self, identity: str, actual: int) -> None:
        raise NotImplementedError

    def open_flow(self, identity: str, last: str) -> tuple[str, list[str]]:
        raise NotImplementedError

    def settle(self, identity: str, outcome: str) -> None:
        assert outcome == "ack", f"{identity}: a stream only acks"
        self._reader.commit(self._at)

    def learn(self) -> bool:
        return False  # Spark has no word for it

    def vanish(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop the query; the next one goes on from its checkpoint."""
        if self._reader is not None:
            self._reader.stop()
            if self._reader._heartbeat is not None:
                self._reader._heartbeat.join(timeout=30)  # its last beat renews the lease
            self._reader = None
