"""Columns of many types as the texts that ids and keys are."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.spark.encoding import BYTES, as_bytes


def names_of(column: pa.Array) -> pa.Array:
    """Return the UTF-8 text of each value: numbers as decimals, timestamps as 2026-11-21T08:00:00.000000Z."""
    if pa.types.is_timestamp(column.type):
        return _instants(column).cast(BYTES)
    if pa.types.is_date(column.type) or pa.types.is_decimal(column.type):
        return column.cast(pa.large_string()).cast(BYTES)
    return as_bytes(column)


def not_text(names: pa.Array) -> pa.Array:
    """Whether the bytes of a value are no valid UTF-8."""
    try:
        names.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([one is not None and not _decodes(one) for one in names.to_pylist()])
    return pa.array([False] * len(names))


def rows_not_text(column: pa.Array) -> pa.Array | None:
    """Return which rows have text, however deep, that is not valid UTF-8; None if no row has any."""
    wrong = np.zeros(len(column), dtype=bool)
    if not is_valid(column):
        wrong[_broken(column, np.arange(len(column)))] = True
    return pa.array(wrong) if wrong.any() else None


def _broken(column: pa.Array, rows: np.ndarray) -> list[int]:
    if is_valid(column.take(pa.array(rows))):
        return []
    if len(rows) == 1:
        return [int(rows[0])]
    return [row for half in np.array_split(rows, 2) for row in _broken(column, half)]


def is_valid(column: pa.Array) -> bool:
    """Whether all texts in the column are valid UTF-8. Spark passes on the bytes that a cast to string was given."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _instants(column: pa.Array) -> pa.Array:
    if column.type.tz is None:
        return pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    return pc.strftime(column.cast(pa.timestamp("us", "UTC")), format="%Y-%m-%dT%H:%M:%SZ")
