"""Columns as JSON texts, by the rules of Spark's to_json, for whole Arrow arrays at once.

Fields of a struct that are null are left out; elements of arrays and values of maps are written as null. Timestamps
have milliseconds and the session's time zone, decimals keep their scale, bytes are Base64.

Unlike to_json, a timestamp whose offset has seconds, as before standard time, is written in UTC: the instant is exact.
"""

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from reliq.errors import InvalidSetting
from reliq.spark.names import is_valid

_TEXT = pa.string()
_TEXTS = (spark.StringType, spark.CharType, spark.VarcharType)
_PLAIN = (spark.BooleanType, spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.DecimalType)
_FLOATS = (spark.FloatType, spark.DoubleType)
_QUOTED = (*_TEXTS, spark.BinaryType, spark.DateType, spark.TimestampType, spark.TimestampNTZType)
_LEAVES = (*_PLAIN, *_FLOATS, *_QUOTED, spark.VariantType, spark.NullType)
_KEYS = (*_TEXTS, *_PLAIN, spark.NullType)  #: of maps
_SPATIAL: tuple[type[spark.DataType], ...] = tuple(filter(None, [getattr(spark, "SpatialType", None)]))
_TO_BE_ESCAPED = r'[\x00-\x1f"\\]'
_OFFSET = re.compile(r"(?:Z|UTC|GMT|UT)?(?:([+-])([0-9]{1,2}):?([0-9]{2})?)?")
_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def check_kind(name: str, kind: spark.DataType) -> None:
    """Raise InvalidSetting, naming the column and the cast that helps, for a type that has no JSON form."""
    unfit = dict(_formless(name, kind))
    if not unfit:
        return
    advice = f"cast({quoted(name)} AS {_castable(kind)})"
    if any(isinstance(one, _SPATIAL) for one in unfit.values()):  # not to be cast
        advice = f"st_asbinary({quoted(name)})" if isinstance(kind, _SPATIAL) else "leave it out"
    place, inner = next(iter(unfit.items()))
    raise InvalidSetting(f"column `{place}` is {inner.simpleString()}, which has no JSON form: {advice}")


def _formless(place: str, kind: spark.DataType) -> Iterator[tuple[str, spark.DataType]]:
    """Yield what has no JSON form within a type: its path and its own type."""
    match kind:
        case spark.StructType():
            for field in kind.fields:
                yield from _formless(f"{place}.{field.name}", field.dataType)
        case spark.ArrayType():
            yield from _formless(f"{place}[]", kind.elementType)
        case spark.MapType():
            yield from _formless(f"{place}{{}}", kind.valueType)
            if not isinstance(kind.keyType, _KEYS):
                yield f"{place}{{key}}", kind.keyType
        case _ if not isinstance(kind, _LEAVES):
            yield place, kind


def _castable(kind: spark.DataType) -> str:
    """Return the SQL name of a type, with `string` for each part that has no JSON form."""
    match kind:
        case spark.StructType():
            return f"struct<{', '.join(f'{quoted(one.name)}: {_castable(one.dataType)}' for one in kind.fields)}>"
        case spark.ArrayType():
            return f"array<{_castable(kind.elementType)}>"
        case spark.MapType():
            key = _castable(kind.keyType) if isinstance(kind.keyType, _KEYS) else "string"
            return f"map<{key}, {_castable(kind.valueType)}>"
        case _:
            return str(kind.simpleString()) if isinstance(kind, _LEAVES) and not isinstance(kind, _TEXTS) else "string"


def quoted(name: str) -> str:
    """Return the name of a column as SQL has it."""
    return f"`{name.replace('`', '``')}`"


def row_texts(names: Sequence[str], columns: Sequence[pa.Array], kinds: Sequence[spark.DataType]) -> pa.Array:
    """Return each row as a JSON object; columns that are null are left out."""
    # Not null_handling="skip": PyArrow then leaves out the rows in which all pieces are null.
    fields = [
        pc.fill_null(_concatenated(f",{json.dumps(name, ensure_ascii=False)}:", texts_of(column, kind)), "")
        for name, column, kind in zip(names, columns, kinds, strict=True)
    ]
    return _concatenated("{", pc.utf8_ltrim(_concatenated(*fields), ","), "}")


def texts_of(values: pa.Array, kind: spark.DataType) -> pa.Array:
    """Return the JSON text of each value; null for a null."""
    match kind:
        case spark.StructType():
            if not kind.fields:
                return _where_valid(values, pa.array(["{}"] * len(values), _TEXT))
            kinds = [field.dataType for field in kind.fields]
            return _where_valid(values, row_texts(kind.names, values.flatten(), kinds))
        case spark.ArrayType():
            inside = pc.fill_null(texts_of(_between(values, values.values), kind.elementType), "null")
            return _lists(values, inside, "[", "]")
        case spark.MapType():
            keys, items = _between(values, values.keys), _between(values, values.items)
            of_items = pc.fill_null(texts_of(items, kind.valueType), "null")
            return _lists(values, _concatenated(_json_texts(keys.cast(_TEXT)), ":", of_items), "{", "}")
        case spark.VariantType():
            return _variants(values)
        case spark.TimestampType() | spark.TimestampNTZType():
            return _concatenated('"', _times(values), '"')
        case spark.BinaryType():
            return _each(values, lambda one: f'"{base64.b64encode(one).decode()}"')
        case spark.DateType():
            return _concatenated('"', _with_far_years(values.cast(_TEXT), values), '"')
        case spark.NullType():
            return pa.nulls(len(values), _TEXT)
        case _ if isinstance(kind, _FLOATS):
            return _floats(values)
        case _ if isinstance(kind, _TEXTS):
            return _json_texts(values.cast(_TEXT))
        case _:
            return values.cast(_TEXT)


def _times(values: pa.Array) -> pa.Array:
    zone = values.type.tz
    # In UTC: in the zone itself Arrow refuses the times of an hour that the clocks repeat.
    floored = pc.floor_temporal(values.cast(pa.timestamp("us", zone and "UTC")), unit="millisecond")
    if zone is None:
        local = floored.cast(pa.timestamp("ms"))
        return _with_far_years(pc.strftime(local, format="%Y-%m-%dT%H:%M:%S").cast(_TEXT), local)
    utc = floored.cast(pa.timestamp("ms", "UTC"))
    local = utc.cast(pa.timestamp("ms", _zone_of(zone)))
    offsets = pc.subtract(pc.local_timestamp(local).cast(pa.int64()), utc.cast(pa.int64())).fill_null(0).to_numpy()
    texts = pc.if_else(pa.array(offsets % 60_000 == 0), _with_offset(local), _with_offset(utc))
    return pc.replace_substring_regex(texts, r"\+00:00$", "Z")


def _with_offset(times: pa.Array) -> pa.Array:
    texts = pc.strftime(times, format="%Y-%m-%dT%H:%M:%S%Ez").cast(_TEXT)
    return _with_far_years(texts, pc.local_timestamp(times), len("+00:00"))


def _with_far_years(texts: pa.Array, local: pa.Array, ending: int = 0) -> pa.Array:
    """Put right the texts of years that have no four digits: Arrow knows them up to 32767, and writes no sign.

    `local`: the same days, or times in ms. `ending`: how many characters of a text are not of it.
    """
    unit = "D" if pa.types.is_date(local.type) else "ms"
    moments = local.cast(pa.int32() if unit == "D" else pa.int64()).fill_null(0).to_numpy().astype(f"M8[{unit}]")
    far = (moments < np.datetime64("0000-01-01")) | (moments >= np.datetime64("10000-01-01"))
    if not far.any():
        return texts
    given = texts.to_pylist()
    for row in np.flatnonzero(far):
        text = str(moments[row])
        given[row] = ("" if text[0] == "-" else "+") + text + given[row][len(given[row]) - ending :]
    return pa.array(given, _TEXT)


@functools.cache
def _zone_of(name: str) -> str:
    """Return what Arrow calls a time zone of Spark, such as +08:00 for GMT+8; UTC for one that it does not know."""
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        name = f"{sign}{int(hours):02}:{minutes or '00'}" if sign else "UTC"
    try:
        pc.local_timestamp(pa.scalar(0, pa.timestamp("ms", name)))
    except pa.ArrowInvalid:
        return "UTC"
    return name


def _floats(values: pa.Array) -> pa.Array:
    texts = values.cast(_TEXT)
    texts = pc.if_else(pc.match_substring_regex(texts, r"^-?[0-9]+$"), _concatenated(texts, ".0"), texts)
    if pc.all(pc.is_finite(values)).as_py() is False:
        return _each(texts, lambda one: _NOT_FINITE.get(one) or one)
    return texts


def _json_texts(texts: pa.Array) -> pa.Array:
    if not is_valid(texts):  # as in Spark, with U+FFFD; the rows are refused
        given = texts.cast(pa.binary()).to_pylist()
        texts = pa.array([None if one is None else one.decode(errors="replace") for one in given], _TEXT)
    if pc.any(pc.match_substring_regex(texts, _TO_BE_ESCAPED)).as_py():
        return _each(texts, lambda one: json.dumps(one, ensure_ascii=False))
    return _concatenated('"', texts, '"')


def _variants(values: pa.Array) -> pa.Array:
    value, metadata = (values.field(name).to_pylist() for name in ("value", "metadata"))
    rows = zip(values.is_valid().to_pylist(), value, metadata, strict=True)
    return pa.array([spark.VariantVal(one, names).toJson() if valid else None for valid, one, names in rows], _TEXT)


def _between(lists: pa.Array, children: pa.Array) -> pa.Array:
    """Return the children that a slice of lists refers to."""
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return children.slice(first, last - first)


def _lists(lists: pa.Array, inside: pa.Array, start: str, end: str) -> pa.Array:
    """Join the texts of the elements of each list."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, inside), ",")
    return _where_valid(lists, _concatenated(start, joined, end))


def _where_valid(values: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT)) if values.null_count else texts


def _each(values: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if one is None else text(one) for one in values.to_pylist()], _TEXT)


def _concatenated(*pieces: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "")
