"""The columns of the readers, and messages as Arrow batches."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark

from reliq import ops
from reliq.errors import InvalidSetting
from reliq.model.element import APART, Envelope, Extra
from reliq.model.keys import QueueKeys
from reliq.model.message import wrapped
from reliq.transport.store import Store

Kind = tuple[spark.DataType, pa.DataType]  #: of Spark, and of Arrow
TEXT: Kind = (spark.StringType(), pa.string())
COUNT: Kind = (spark.LongType(), pa.int64())
_NUMBER: Kind = (spark.IntegerType(), pa.int32())
TIME: Kind = (spark.TimestampType(), pa.timestamp("us", tz="UTC"))
_COLUMNS: dict[str, Kind] = {
    "id": TEXT,
    "value": (spark.BinaryType(), pa.binary()),
    "headers": (spark.MapType(spark.StringType(), spark.StringType()), pa.map_(pa.string(), pa.string())),
    "queue": TEXT,
    "routing_key": TEXT,
    "deliveries": _NUMBER,
    "failures": _NUMBER,
    "redelivered": (spark.BooleanType(), pa.bool_()),
    "enqueued_at": TIME,
    "due_at": TIME,
    "died_at": TIME,
    "reason": TEXT,
    "error_class": TEXT,
    "error": TEXT,
}


def schemas_of(columns: Mapping[str, Kind]) -> tuple[spark.StructType, pa.Schema]:
    """Return the schema of these columns for Spark, and for Arrow."""
    fields = [spark.StructField(name, kind) for name, (kind, _) in columns.items()]
    return spark.StructType(fields), pa.schema([(name, kind) for name, (_, kind) in columns.items()])


SCHEMA, _ARROW = schemas_of(_COLUMNS)
READ_ONLY = frozenset(SCHEMA.names) - {"id", "value", "headers"}

_decode = msgspec.msgpack.Decoder(Envelope).decode
_NO_EXTRA = Extra()
_BATCH_BYTES = 16 * 1024 * 1024


def check_user_schema(schema: spark.StructType) -> None:
    """Raise InvalidSetting unless a schema given by the user is the fixed one."""
    if schema.names != SCHEMA.names:
        raise InvalidSetting(f"the columns are fixed: {', '.join(SCHEMA.names)}; leave .schema() out, and select")


def batches_of(
    store: Store,
    keys: QueueKeys,
    elements: Sequence[bytes],
    due: Sequence[int] | None = None,
    died: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield messages as batches with at most 16 MiB of bodies that are apart, or one larger body; times in ms.

    The value of an undecodable row is its raw bytes, that of a message whose body is gone meanwhile is null.
    """
    envelopes = [_envelope(element) for element in elements]
    start = 0
    for end in _cuts(envelopes):
        part = slice(start, end)
        bodies = _bodies(store, keys, envelopes[part])
        yield _batch_of(keys.logical, envelopes[part], bodies, due and due[part], died and died[part])
        start = end


def _cuts(envelopes: Sequence[Envelope]) -> Iterator[int]:
    """Yield where a batch ends."""
    size = 0
    for place, envelope in enumerate(envelopes):
        reference = _reference(envelope)
        more = int.from_bytes(reference[-4:]) if reference else 0
        if size and size + more > _BATCH_BYTES:
            yield place
            size = 0
        size += more
    if envelopes:
        yield len(envelopes)


def _reference(envelope: Envelope) -> bytes:
    return envelope.extra.apart if envelope.version == APART and envelope.extra is not None else b""


def _bodies(store: Store, keys: QueueKeys, envelopes: Sequence[Envelope]) -> list[bytes | None]:
    """Return the body of each message, in its element or apart."""
    references = [reference for envelope in envelopes if (reference := _reference(envelope))]
    apart = iter(store.call(ops.stored_bodies(keys, references)) if references else ())
    return [next(apart) if _reference(envelope) else envelope.body for envelope in envelopes]


def _batch_of(
    queue: str,
    envelopes: Sequence[Envelope],
    bodies: Sequence[bytes | None],
    due: Sequence[int] | None,
    died: Sequence[int] | None,
) -> pa.RecordBatch:
    extras = [envelope.extra or _NO_EXTRA for envelope in envelopes]
    failures = [extra.errors[-1] if extra.errors else None for extra in extras]
    columns = (
        [envelope.id for envelope in envelopes],
        bodies,
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
