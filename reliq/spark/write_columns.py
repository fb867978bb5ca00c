"""The columns of a write, decided on the driver: which columns are the body, and which are options of the message."""

from dataclasses import dataclass

from pyspark.sql import types as spark

from reliq.errors import InvalidSetting
from reliq.spark.as_json import check_kind, quoted
from reliq.spark.columns import READ_ONLY

Kinds = tuple[type[spark.DataType], ...]

_TEXT: Kinds = (spark.StringType, spark.CharType, spark.VarcharType)
_WHOLE: Kinds = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_TIMES: Kinds = (spark.DateType, spark.TimestampType, spark.TimestampNTZType)
_NAMES: Kinds = (*_TEXT, *_WHOLE, spark.DecimalType, *_TIMES)
_A_NAME = "a text, a whole number, a decimal, a date or a timestamp"
#: the columns that are options of the message, with what they must be
OPTIONS: dict[str, tuple[str, Kinds]] = {
    "id": (_A_NAME, _NAMES),
    "key": (f"{_A_NAME}, or binary", (*_NAMES, spark.BinaryType)),
    "headers": ("map<string,string> or array<struct<key:string,value:binary>>", (spark.MapType, spark.ArrayType)),
    "priority": ("string: high, normal or low", _TEXT),
    "delay_ms": ("a whole number of milliseconds", _WHOLE),
    "ttl_ms": ("a whole number of milliseconds", _WHOLE),
    "dedup_key": (_A_NAME, _NAMES),
    "queue": ("string", _TEXT),
    "topic": ("string", _TEXT),
}
_AS_ROW = '.option("body", "row") makes the whole row the body'


@dataclass(frozen=True)
class WriteColumns:
    """The columns of a write. `whole_row`: the body is the row as JSON, else it is the column `value`."""

    schema: spark.StructType
    whole_row: bool
    options: frozenset[str]  #: the columns that are options of the message
    names: tuple[str, ...]  #: what this library calls each column: options and `value` in lower case, others as given
    overridden: int | None = None  #: the place of a column `queue` beside the option queue, which is for all rows

    def kind(self, column: str) -> spark.DataType:
        kind: spark.DataType = self.schema.fields[self.names.index(column)].dataType
        return kind


def write_columns_of(
    schema: spark.StructType, body: str | None, columns: tuple[str, ...] | None, queue: str | None
) -> WriteColumns:
    """Return the columns; raises InvalidSetting, naming the column, for columns that cannot be sent.

    `body`: "row", "value", or None: "value" if there is such a column. `columns`: the columns that are options of the
    message; by default all that have the name of one. `queue`: the queue of all rows.
    """
    there = {name.lower() for name in schema.names}
    whole_row = body == "row" or (body is None and "value" not in there)
    if not whole_row and "value" not in there:
        raise InvalidSetting(f"there is no column `value`, the body: make one, or {_AS_ROW}")
    if not schema.fields:
        raise InvalidSetting("the DataFrame has no columns: a message needs a column `value`, or any other")
    options = _options(schema, there, columns)
    void = {one.name.lower() for one in schema.fields if isinstance(one.dataType, spark.NullType)} - {"queue", "topic"}
    overridden = _overridden(schema) if queue is not None and columns is None else None
    if queue is not None and columns is None:
        options -= {"queue", "topic"} if whole_row else {"queue"}  # data, as the queue is known
    names = _names(schema, options if whole_row else options | {"value"})
    for name, field in zip(names, schema.fields, strict=True):
        if name in options - void:
            _check_option(name, field, whole_row)
        if whole_row:
            check_kind(field.name, field.dataType)
        elif name == "value":
            _check_value(field.dataType)
        elif name not in options and name.lower() not in READ_ONLY:
            raise InvalidSetting(
                f"column `{field.name}` is not one of value, {', '.join(OPTIONS)}: drop it or rename it; {_AS_ROW}"
            )
    return WriteColumns(schema, whole_row, options - void, names, overridden)


def _overridden(schema: spark.StructType) -> int | None:
    texts = (place for place, one in enumerate(schema.fields) if isinstance(one.dataType, _TEXT))
    return next((place for place in texts if schema.names[place].lower() == "queue"), None)


def _names(schema: spark.StructType, known: frozenset[str]) -> tuple[str, ...]:
    """Return what each column is called here: `known` ones are found in any case, as Spark finds columns."""
    names = [name.lower() if name.lower() in known else name for name in schema.names]
    for place, name in enumerate(names):
        first = names.index(name)
        if first == place:
            continue
        if name not in known:
            raise InvalidSetting(f"two columns are called `{name}`: rename one of them")
        both = f"columns `{schema.names[first]}` and `{schema.names[place]}` are both the"
        raise InvalidSetting(f"{both} {'body' if name == 'value' else f'{name} of the message'}: drop one of them")
    return tuple(names)


def _options(schema: spark.StructType, there: set[str], columns: tuple[str, ...] | None) -> frozenset[str]:
    if columns is None:
        return frozenset(OPTIONS) & there
    for name in columns:
        if name not in OPTIONS:
            raise InvalidSetting(f"option columns names {name!r}: it lists some of {', '.join(OPTIONS)}")
        if name not in there:
            raise InvalidSetting(f"option columns names `{name}`; the columns are {', '.join(schema.names)}")
    return frozenset(columns)


def _check_option(name: str, field: spark.StructField, whole_row: bool) -> None:
    wanted, kinds = OPTIONS[name]
    if isinstance(field.dataType, kinds) and (name != "headers" or _is_headers(field.dataType)):
        return
    kind = field.dataType.simpleString()
    if name == "headers":
        cast = _cast_to_headers(field.dataType)
    else:
        cast = "string" if spark.DecimalType in kinds else ""
    how = f": cast({quoted(field.name)} AS {cast})" if cast else ""
    data = '; if it is not an option of the message, list those that are: .option("columns", "id")' if whole_row else ""
    raise InvalidSetting(f"column `{field.name}` is {kind}; it must be {wanted}{how}{data}")


def _check_value(kind: spark.DataType) -> None:
    if isinstance(kind, _TIMES):
        raise InvalidSetting(
            f"column `value` is {kind.simpleString()}, which has no one form as a body: cast(value AS string), or "
            "to_json(struct(value))"
        )
    check_kind("value", kind)


def _is_headers(kind: spark.DataType) -> bool:
    """Whether a map or an array has names and values of headers."""
    match kind:
        case spark.MapType():
            return isinstance(kind.keyType, _TEXT) and isinstance(kind.valueType, _TEXT)
        case spark.ArrayType(elementType=spark.StructType(names=["key", "value"], fields=[key, value])):
            is_value = isinstance(value.dataType, (*_TEXT, spark.BinaryType, spark.NullType))
            return isinstance(key.dataType, _TEXT) and is_value
    return False


def _cast_to_headers(kind: spark.DataType) -> str:
    """Return the SQL type of headers to which Spark casts this one; empty if it casts it to none."""
    match kind:
        case spark.MapType():
            return "map<string,string>"
        case spark.ArrayType(elementType=spark.StructType(fields=[_, _])):
            return "array<struct<key:string,value:string>>"
    return ""
