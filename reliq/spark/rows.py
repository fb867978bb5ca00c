"""Rows of a DataFrame as chunks: the schema checked on the driver, Arrow batches encoded on the executors."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from reliq.errors import InvalidMessage, InvalidName, InvalidSetting, Unroutable
from reliq.model.element import Extra, check_id
from reliq.model.outgoing import check_headers, too_large
from reliq.model.settings import MAX_DELAY_SECONDS
from reliq.ops.chunks import Chunk
from reliq.spark import encoding
from reliq.spark.columns import READ_ONLY
from reliq.spark.targets import Targets

_TEXT = (spark.StringType, spark.CharType, spark.VarcharType)
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_WANTED = {
    "value": ("string or binary: write a struct with to_json(struct(...))", (*_TEXT, spark.BinaryType)),
    "id": ("string", _TEXT),
    "key": ("string or binary", (*_TEXT, spark.BinaryType)),
    "headers": ("map<string,string> or array<struct<key:string,value:binary>>", (spark.MapType, spark.ArrayType)),
    "delay_ms": ("a whole number of milliseconds", _WHOLE),
    "queue": ("string", _TEXT),
    "topic": ("string", _TEXT),
}
_IDS = r"^[\x21-\x7e]{1,128}$"  #: as in reliq.model.element.check_id

_encode = msgspec.msgpack.Encoder().encode


def check_schema(schema: spark.StructType) -> None:
    """Raise InvalidSetting, naming the column, for an invalid schema. Columns of the reader only are ignored."""
    if "value" not in schema.names:
        raise InvalidSetting("there is no column `value`, the body: make it with to_json(struct(*)) AS value")
    for column in schema.fields:
        if column.name in READ_ONLY and column.name != "queue":
            continue
        if column.name not in _WANTED:
            known = ", ".join(_WANTED)
            raise InvalidSetting(
                f"column `{column.name}` is not one of {known}: drop it, rename it, or put it into value"
            )
        wanted, kinds = _WANTED[column.name]
        if not isinstance(column.dataType, kinds) or not _holds_texts(column.dataType):
            kind = column.dataType.simpleString()
            raise InvalidSetting(f"column `{column.name}` is {kind}; it must be {wanted}")


def _holds_texts(kind: spark.DataType) -> bool:
    """Whether headers, the only nested column, map names to texts."""
    if isinstance(kind, spark.MapType):
        return isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _TEXT)
    if isinstance(kind, spark.ArrayType):
        pair = kind.elementType
        return isinstance(pair, spark.StructType) and pair.names == ["key", "value"]
    return True


class Rows:
    """Encodes the rows of one partition. Ids are `<prefix>-<row>` unless there is an `id` column."""

    def __init__(
        self, prefix: str, partition: int, max_body: int, targets: Targets, trace: Mapping[str, str] = {}
    ) -> None:
        self._prefix = f"{prefix}-"
        self._partition = partition
        self._max_body = max_body
        self._targets = targets
        self._trace = trace  #: default headers of all rows
        self._row = 0  #: the first row of the next batch, counted in the partition
        self.unroutable = 0  #: rows with a topic that no queue is bound to

    def chunks(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Iterator[Chunk]]]:
        """Yield queues, each with its chunks. All rows of the batch are checked before the first result.

        Raises InvalidMessage, naming the column and the row, for a null, a body or headers that are too large.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        frames = self._frames(columns, batch.num_rows)
        delays = self._delays(columns.get("delay_ms"))
        if delays is not None:
            frames = encoding.delayed(delays, frames)
        for queue, rows in self._routed(columns):
            yield queue, encoding.chunks(frames if rows is None else frames.take(rows), delays is not None)
        self._row += batch.num_rows

    def _frames(self, columns: dict[str, pa.Array], count: int) -> pa.Array:
        bodies = self._bodies(columns["value"])
        ids = self._ids(columns.get("id"), count)
        headers, extras = self._headers(columns, count), self._extras(columns.get("topic"))
        return encoding.frames(ids, bodies, headers, extras)

    def _bodies(self, column: pa.Array) -> pa.Array:
        self._refuse_nulls("value", column)
        bodies = encoding.as_bytes(column)
        largest = pc.max(pc.binary_length(bodies)).as_py() or 0
        if largest > self._max_body:
            row = pc.index(pc.binary_length(bodies), largest).as_py()
            raise self._wrong("value", row, too_large(largest, self._max_body, "maxBody"))
        return bodies

    def _ids(self, column: pa.Array | None, count: int) -> list[pa.Array | bytes]:
        if column is None:
            return [self._prefix.encode(), encoding.numbers(self._row, count)]
        self._refuse_nulls("id", column)
        row = pc.index(pc.match_substring_regex(column, _IDS), False).as_py()
        if row >= 0:
            try:
                check_id(column[row].as_py())
            except InvalidName as error:
                raise self._wrong("id", row, str(error)) from None
        return [encoding.as_bytes(column)]

    def _headers(self, columns: dict[str, pa.Array], count: int) -> pa.Array | bytes | None:
        if "headers" not in columns and "key" not in columns:
            return _encode(self._trace) if self._trace else None
        given = columns["headers"].to_pylist() if "headers" in columns else [None] * count
        keys = columns["key"].to_pylist() if "key" in columns else [None] * count
        rows = enumerate(zip(given, keys, strict=True))
        return pa.array([_encode(self._one_headers(row, some, key)) for row, (some, key) in rows], encoding.BYTES)

    def _one_headers(self, row: int, given: list[Any] | None, key: str | bytes | None) -> dict[str, str]:
        try:
            pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in given or ()]
            headers = {**self._trace, **{name: _text(value) for name, value in pairs}}
            if key is not None:
                headers["key"] = _text(key)
            return check_headers(headers)
        except (InvalidMessage, UnicodeDecodeError) as error:
            raise self._wrong("key" if key is not None and not given else "headers", row, str(error)) from None

    def _delays(self, column: pa.Array | None) -> pa.Array | None:
        """Return the delays; None if no row has one."""
        if column is None:
            return None
        delays = pc.fill_null(column.cast(pa.int64()), 0)
        longest = round(MAX_DELAY_SECONDS * 1000)
        wrong = pc.index(pc.or_(pc.less(delays, 0), pc.greater(delays, longest)), True).as_py()
        if wrong >= 0:
            raise self._wrong("delay_ms", wrong, f"is {delays[wrong]}: it must be from 0 to {longest}")
        return delays if pc.any(pc.greater(delays, 0)).as_py() else None

    def _extras(self, topics: pa.Array | None) -> pa.Array | None:
        """Return the part of the elements with the routing key."""
        if topics is None:
            return None
        self._refuse_nulls("topic", topics)
        distinct = topics.dictionary_encode()
        extras = [_encode(Extra(routing_key=topic)) for topic in distinct.dictionary.to_pylist()]
        return pa.array(extras, encoding.BYTES).take(distinct.indices)

    def _routed(self, columns: dict[str, pa.Array]) -> list[tuple[str, np.ndarray | None]]:
        """Return the queues, each with the rows that go there; None = all rows."""
        name = self._targets.column
        if not name:
            return [(self._targets.queue, None)]
        self._refuse_nulls(name, columns[name])
        distinct = columns[name].dictionary_encode()
        values = distinct.indices.to_numpy()
        takers: dict[str, list[int]] = {}
        for number, value in enumerate(distinct.dictionary.to_pylist()):
            try:
                queues = self._targets.of(value)
            except (InvalidName, Unroutable) as error:
                raise self._wrong(name, int(np.argmax(values == number)), str(error)) from None
            for queue in queues:
                takers.setdefault(queue, []).append(number)
            if not queues:
                self.unroutable += int(np.count_nonzero(values == number))
        return [(queue, np.flatnonzero(np.isin(values, numbers))) for queue, numbers in takers.items()]

    def _refuse_nulls(self, name: str, column: pa.Array) -> None:
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise self._wrong(name, row, "is null")

    def _wrong(self, name: str, row: int, what: str) -> InvalidMessage:
        return InvalidMessage(f"column `{name}` in row {self._row + row} of partition {self._partition}: {what}")


def _text(value: str | bytes | None) -> str:
    """Return a header's value as text; empty for a missing value."""
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else value
