"""The columns of the readers, and messages as Arrow batches."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from reliq.errors import InvalidSetting
from reliq.model.element import Envelope, Extra
from reliq.model.message import wrapped

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


def check_user_schema(schema: spark.StructType) -> None:
    """Raise InvalidSetting unless a schema given by the user is the fixed one."""
    if schema.names != SCHEMA.names:
        raise InvalidSetting(f"the columns are fixed: {', '.join(SCHEMA.names)}; leave .schema() out, and select")


def batch_of(
    queue: str, elements: Sequence[bytes], due: Sequence[int] | None = None, died: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return messages as a batch; `due` and `died` in ms. The value of an undecodable row is its raw bytes."""
    envelopes = [_envelope(element) for element in elements]
    extras = [envelope.extra or _NO_EXTRA for envelope in envelopes]
    failures = [extra.errors[-1] if extra.errors else None for extra in extras]
    columns = (
        [envelope.id for envelope in envelopes],
        [envelope.body for envelope in envelopes],
        [list(envelope.headers.items()) for envelope in envelopes],
        [queue] * len(envelopes),
        [extra.routing_key or None for extra in extras],
        [envelope.deliveries for envelope in envelopes],
        [envelope.failures for envelope in envelopes],
        [envelope.redelivered for envelope in envelopes],
        [envelope.enqueued_at * 1000 for envelope in envelopes],
        _micros(due, len(envelopes)),
        _micros(died, len(envelopes)),
        [extra.reason or None for extra in extras],
        [failure.error_class if failure else None for failure in failures],
        [failure.text if failure else None for failure in failures],
    )
    arrays = [pa.array(values, kind) for values, kind in zip(columns, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _envelope(element: bytes) -> Envelope:
    try:
        return _decode(element)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode(wrapped(element)[1])


def _micros(times: Sequence[int] | None, count: int) -> list[int | None]:
    return [None] * count if times is None else [ms * 1000 for ms in times]
