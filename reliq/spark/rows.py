"""Rows of a DataFrame as elements: the schema checked on the driver, Arrow batches encoded on the executors."""

import itertools
import os
import time
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.message import Envelope, check_headers, check_id
from reliq.settings import DELAY_LONGEST
from reliq.spark.columns import READ_ONLY
from reliq.staging import Entry

_TEXT = (spark.StringType, spark.CharType, spark.VarcharType)
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_WANTED = {
    "value": ("string or binary: write a struct with to_json(struct(...))", (*_TEXT, spark.BinaryType)),
    "id": ("string", _TEXT),
    "key": ("string or binary", (*_TEXT, spark.BinaryType)),
    "headers": ("map<string,string> or array<struct<key:string,value:binary>>", (spark.MapType, spark.ArrayType)),
    "delay_ms": ("a whole number of milliseconds", _WHOLE),
}

_encode = msgspec.msgpack.Encoder().encode
_NO_HEADERS: dict[str, str] = {}


def check_schema(schema: spark.StructType) -> None:
    """Raise InvalidSetting, with a sentence that names the column. What only the reader has is ignored."""
    if "value" not in schema.names:
        raise InvalidSetting("there is no column `value`, the body: make it with to_json(struct(*)) AS value")
    for column in schema.fields:
        if column.name == "topic":
            raise InvalidSetting("column `topic`: rows are not routed by topic; write one DataFrame for each queue")
        if column.name in READ_ONLY:
            continue
        if column.name not in _WANTED:
            known = ", ".join(_WANTED)
            raise InvalidSetting(f"column `{column.name}` is none of {known}: drop it, rename it, or put it into value")
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

    def __init__(self, prefix: str, partition: int, max_body: int) -> None:
        self._prefix = prefix
        self._partition = partition
        self._max_body = max_body
        self._row = 0  #: of the partition: the first of the next batch

    def entries(self, batch: pa.RecordBatch) -> list[Entry]:
        """Raises InvalidMessage, naming the column and the row, for a null, a body or headers that are too large."""
        count = batch.num_rows
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bodies = self._bodies(columns["value"])
        ids = self._ids(columns.get("id"), count)
        headers = self._headers(columns, count)
        nonces = array("Q", os.urandom(8 * count))  # as unlike as message.new_nonce's, for a tenth of the time
        now = time.time_ns() // 1_000_000
        # Field by field in their order: by name it takes half as long again.
        elements: list[Entry] = [
            _encode(Envelope(1, identity, nonce, 0, 0, False, now, some, body))  # noqa: FBT003
            for identity, nonce, some, body in zip(ids, nonces, headers, bodies, strict=False)
        ]
        if "delay_ms" in columns:
            delays = self._delays(columns["delay_ms"])
            elements = [(ms, one) if ms else one for ms, one in zip(delays, elements, strict=True)]  # type: ignore[misc]
        self._row += count
        return elements

    def _bodies(self, column: pa.Array) -> Sequence[bytes]:
        self._refuse_nulls("value", column)
        values = column.cast(pa.large_binary())
        largest = pc.max(pc.binary_length(values)).as_py() or 0
        if largest > self._max_body:
            row = pc.index(pc.binary_length(values), largest).as_py()
            raise self._wrong("value", row, f"has {largest} bytes, the limit is {self._max_body}: raise maxBody")
        bodies: Sequence[bytes] = values.to_numpy(zero_copy_only=False).tolist()
        return bodies

    def _ids(self, column: pa.Array | None, count: int) -> Iterable[str]:
        if column is None:
            prefix = self._prefix
            return [f"{prefix}-{row}" for row in range(self._row, self._row + count)]
        self._refuse_nulls("id", column)
        ids: list[str] = column.to_pylist()
        for row, identity in enumerate(ids):
            try:
                check_id(identity)
            except InvalidName as error:
                raise self._wrong("id", row, str(error)) from None
        return ids

    def _headers(self, columns: dict[str, pa.Array], count: int) -> Iterable[dict[str, str]]:
        if "headers" not in columns and "key" not in columns:
            return itertools.repeat(_NO_HEADERS)
        given = columns["headers"].to_pylist() if "headers" in columns else [None] * count
        keys = columns["key"].to_pylist() if "key" in columns else [None] * count
        return [self._one_headers(row, some, key) for row, (some, key) in enumerate(zip(given, keys, strict=True))]

    def _one_headers(self, row: int, given: list[Any] | None, key: str | bytes | None) -> dict[str, str]:
        try:
            pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in given or ()]
            headers = {name: _text(value) for name, value in pairs}
            if key is not None:
                headers["key"] = _text(key)
            return check_headers(headers)
        except (InvalidMessage, UnicodeDecodeError) as error:
            raise self._wrong("key" if key is not None and not given else "headers", row, str(error)) from None

    def _delays(self, column: pa.Array) -> list[int]:
        delays = [ms or 0 for ms in column.to_pylist()]
        for row, ms in enumerate(delays):
            if not 0 <= ms <= DELAY_LONGEST * 1000:
                raise self._wrong("delay_ms", row, f"is {ms}: it must be from 0 to {DELAY_LONGEST * 1000:.0f}")
        return delays

    def _refuse_nulls(self, name: str, column: pa.Array) -> None:
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise self._wrong(name, row, "is null")

    def _wrong(self, name: str, row: int, what: str) -> InvalidMessage:
        return InvalidMessage(f"column `{name}` in row {self._row + row} of partition {self._partition}: {what}")


def _text(value: str | bytes | None) -> str:
    """A header without a value becomes the empty text."""
    if value is None:
        return ""
    return value.decode() if isinstance(value, bytes) else value
