"""The columns that the readers answer, and messages as Arrow batches of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from reliq.errors import InvalidSetting
from reliq.message import Envelope, Extra, wrapped

_TIME = spark.TimestampType()
SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.StringType()),
        spark.StructField("value", spark.BinaryType()),
        spark.StructField("headers", spark.MapType(spark.StringType(), spark.StringType())),
        spark.StructField("queue", spark.StringType()),
        spark.StructField("routing_key", spark.StringType()),
        spark.StructField("deliveries", spark.IntegerType()),
        spark.StructField("failures", spark.IntegerType()),
        spark.StructField("redelivered", spark.BooleanType()),
        spark.StructField("enqueued_at", _TIME),
        spark.StructField("due_at", _TIME),
        spark.StructField("died_at", _TIME),
        spark.StructField("reason", spark.StringType()),
        spark.StructField("error_class", spark.StringType()),
        spark.StructField("error", spark.StringType()),
    ]
)
READ_ONLY = frozenset(SCHEMA.names) - {"id", "value", "headers"}

_MS = pa.timestamp("us", tz="UTC")
_ARROW = pa.schema(
    [
        ("id", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("queue", pa.string()),
        ("routing_key", pa.string()),
        ("deliveries", pa.int32()),
        ("failures", pa.int32()),
        ("redelivered", pa.bool_()),
        ("enqueued_at", _MS),
        ("due_at", _MS),
        ("died_at", _MS),
        ("reason", pa.string()),
        ("error_class", pa.string()),
        ("error", pa.string()),
    ]
)

_decode = msgspec.msgpack.Decoder(Envelope).decode
_NO_EXTRA = Extra()


class Row(NamedTuple):
    """One message, column by column. Times in microseconds since the epoch."""

    id: str
    value: bytes
    headers: list[tuple[str, str]]
    queue: str
    routing_key: str | None
    deliveries: int
    failures: int
    redelivered: bool
    enqueued_at: int
    due_at: int | None
    died_at: int | None
    reason: str | None
    error_class: str | None
    error: str | None


def check_user_schema(schema: spark.StructType) -> None:
    """A schema given by the user must be ours: raise InvalidSetting."""
    if schema.names != SCHEMA.names:
        raise InvalidSetting(f"the columns are fixed: {', '.join(SCHEMA.names)}; leave .schema() out, and select")


def row_of(queue: str, element: bytes, due: int | None = None, died: int | None = None) -> Row:
    """A message as a row; what does not decode is a row too, with the raw bytes as its value."""
    try:
        envelope = _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        envelope = _decode(wrapped(element)[1])
    extra = envelope.extra or _NO_EXTRA
    last = extra.errors[-1] if extra.errors else None
    return Row(
        envelope.id,
        envelope.body,
        list(envelope.headers.items()),
        queue,
        extra.routing_key or None,
        envelope.deliveries,
        envelope.failures,
        envelope.redelivered,
        envelope.enqueued_at * 1000,
        None if due is None else due * 1000,
        None if died is None else died * 1000,
        extra.reason or None,
        last.error_class if last else None,
        last.text if last else None,
    )


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns: list[Any] = [
        pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), _ARROW.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)
