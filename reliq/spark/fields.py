"""The columns of a batch, checked, in the form in which they are encoded."""

from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from reliq.contract import values
from reliq.contract.values import check_id
from reliq.errors import InvalidMessage, InvalidName
from reliq.model.outgoing import check_headers, check_key, too_large
from reliq.spark import encoding
from reliq.spark.as_json import row_texts, texts_of
from reliq.spark.encoding import BYTES
from reliq.spark.names import names_of, not_text, rows_not_text
from reliq.spark.refused import Refused
from reliq.spark.rules import Rules
from reliq.spark.write_columns import WriteColumns

Columns = dict[str, pa.Array]

_IDS = r"^[\x21-\x7e]{1,128}$"  #: as in reliq.contract.values.check_id
_MAX_MS = round(values.MAX_DELAY_SECONDS * 1000)

_encode = msgspec.msgpack.Encoder().encode


class Fields:
    """Makes the fields of messages of the columns of one batch; refuses rows that cannot be sent.

    `prefix`, `first`: the id of a row is the prefix and its number, unless it has one of its own.
    """

    def __init__(
        self, columns: WriteColumns, rules: Rules, target_column: str, prefix: str, first: int, refused: Refused
    ) -> None:
        self._columns = columns
        self._rules = rules
        self._target_column = target_column
        self._prefix = prefix
        self._first = first
        self._refused = refused

    def of(self, batch: pa.RecordBatch) -> Columns:
        """Return the fields by name; what a refused row has there does not matter."""
        body = dict(zip(self._columns.names, batch.columns, strict=True))
        given, count = self._readable(body), batch.num_rows
        fields = {
            "number": encoding.numbers(self._first, count),
            "body": self._bodies(body),
            "id": self._ids(self._option(given, "id")),
            "key": self._keys(self._option(given, "key")),
            "headers": self._headers(self._option(given, "headers"), self._option(given, "key"), count),
            "priority": self._priorities(self._option(given, "priority")),
            "delay": self._times("delay_ms", 0, self._option(given, "delay_ms")),
            "ttl": self._times("ttl_ms", 1, self._option(given, "ttl_ms")),
            "dedup": self._dedup_keys(self._option(given, "dedup_key")),
            "target": self._target(given),
        }
        return {name: column for name, column in fields.items() if column is not None}

    def _readable(self, given: Columns) -> Columns:
        """Refuse rows with text that is not UTF-8, unless it is the body as it is; return the columns without it."""
        readable: Columns = {}
        for name, column in given.items():
            is_body = self._columns.whole_row or (name == "value" and not self._is_body_itself)
            if is_body or name in self._columns.options:
                wrong = rows_not_text(column)
                if wrong is not None:
                    self._refused.each(name, wrong, "is no text", lambda _: "has text that is not UTF-8")
                    column = column.take(pc.if_else(wrong, pa.scalar(None, pa.int64()), pa.array(range(len(column)))))
            readable[name] = column
        return readable

    def _option(self, given: Columns, name: str) -> pa.Array | None:
        return given[name] if name in self._columns.options else None

    def _bodies(self, given: Columns) -> pa.Array:
        if self._columns.whole_row:
            kinds = [one.dataType for one in self._columns.schema.fields]
            bodies = row_texts(self._columns.schema.names, list(given.values()), kinds).cast(BYTES)
        else:
            self._refuse_nulls("value", given["value"])
            bodies = self._values(given["value"])
        sizes = pc.binary_length(bodies)
        limit, column = self._rules.max_body, "row" if self._columns.whole_row else "value"
        if (pc.max(sizes).as_py() or 0) > limit:
            large = pc.greater(sizes, limit)
            self._refused.each(
                column, large, "is too large", lambda row: too_large(sizes[row].as_py(), limit, "maxBody")
            )
        return bodies

    def _values(self, column: pa.Array) -> pa.Array:
        if self._is_body_itself:
            return encoding.as_bytes(column)
        return texts_of(column, self._columns.kind("value")).cast(BYTES)

    @property
    def _is_body_itself(self) -> bool:
        """Whether the column `value` is the body without a conversion."""
        kinds = (spark.StringType, spark.CharType, spark.VarcharType, spark.BinaryType)
        return isinstance(self._columns.kind("value"), kinds)

    def _ids(self, column: pa.Array | None) -> pa.Array | None:
        if column is None:
            return None
        ids = names_of(column)
        fit = pc.match_substring_regex(ids, _IDS)
        if pc.all(fit).as_py() is False:
            self._refused.each("id", pc.invert(fit), "is invalid", lambda row: _error_of(check_id, ids[row].as_py()))
        if not ids.null_count:
            return ids
        return pc.coalesce(ids, encoding.joined(self._prefix.encode(), encoding.numbers(self._first, len(ids))))

    def _keys(self, column: pa.Array | None) -> pa.Array | None:
        """Return the ordering keys; None if no row has one."""
        if column is None or self._rules.key_as == "header":
            return None
        return self._texts("key", column, values.MAX_KEY_BYTES)

    def _dedup_keys(self, column: pa.Array | None) -> pa.Array | None:
        return None if column is None else self._texts("dedup_key", column, self._rules.max_body)

    def _texts(self, name: str, column: pa.Array, longest: int) -> pa.Array | None:
        if column.null_count == len(column):
            return None
        texts = names_of(column)
        self._refused.each(name, not_text(texts), "is no text", lambda row: f"{texts[row].as_py()!r} is not UTF-8")
        sizes = pc.binary_length(texts)
        unfit = pc.or_(pc.equal(sizes, 0), pc.greater(sizes, longest))
        self._refused.each(name, unfit, "is invalid", lambda row: _error_of(check_key, texts[row].as_py(), name))
        return texts

    def _headers(self, column: pa.Array | None, keys: pa.Array | None, count: int) -> pa.Array | None:
        """Return the encoded headers; None if no row has any of its own."""
        if keys is not None and self._rules.key_as == "order":
            keys = None
        if column is None and keys is None:
            return None
        given = column.to_pylist() if column is not None else [None] * count
        names = names_of(keys).to_pylist() if keys is not None else [None] * count
        rows = enumerate(zip(given, names, strict=True))
        return pa.array([self._one_headers(row, some, key) for row, (some, key) in rows], BYTES)

    def _one_headers(self, row: int, given: list[Any] | None, key: bytes | None) -> bytes:
        try:
            own: dict[str, list[str]] = {}
            for name, value in map(_pair, given or ()):
                own.setdefault(name, []).append(_header(name, value))
            if key is not None and (text := _header("key", key)) not in own.get("key", ()):
                own.setdefault("key", []).append(text)
            once = {name: self._once(name, values) for name, values in own.items()}
            return _encode(check_headers({**self._rules.trace, **once}))
        except InvalidMessage as error:
            self._refused.one("key" if key is not None and not given else "headers", row, "are invalid", str(error))
            return _encode({})

    def _once(self, name: str, given: list[str]) -> str:
        """Return the value of a header; of one that is given several times the list of them, if that is asked for."""
        if len(given) == 1:
            return given[0]
        if self._rules.repeated_headers == "list":
            return msgspec.json.encode(given).decode()
        raise InvalidMessage(
            f"header {name!r} is given {len(given)} times, and a message has each once: "
            'option("repeatedHeaders", "list") keeps the values as a JSON list'
        )

    def _priorities(self, column: pa.Array | None) -> pa.Array | None:
        if column is None:
            return None
        known = pa.array(values.PRIORITIES, column.type)
        wrong = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, known)))
        self._refused.each(
            "priority", wrong, "is invalid", lambda row: f"is {column[row].as_py()!r}: it is high, normal or low"
        )
        return column

    def _times(self, name: str, least: int, column: pa.Array | None) -> pa.Array | None:
        """Return ms; None if no row has any."""
        if column is None or column.null_count == len(column):
            return None
        times = column.cast(pa.int64())
        wrong = pc.or_(pc.less(times, least), pc.greater(times, _MAX_MS))
        self._refused.each(
            name, wrong, "is invalid", lambda row: f"is {times[row]}: it must be from {least} to {_MAX_MS}"
        )
        return times

    def _target(self, given: Columns) -> pa.Array | None:
        """Return the column that routes the rows, if there is one."""
        if not self._target_column:
            return None
        self._refuse_nulls(self._target_column, given[self._target_column])
        return given[self._target_column]

    def _refuse_nulls(self, name: str, column: pa.Array) -> None:
        if column.null_count:
            self._refused.each(name, column.is_null(), "is null", lambda _: "is null")


def _error_of(check: Any, value: bytes, *what: str) -> str:
    """Return why the check refuses this value."""
    try:
        check(value.decode(errors="replace"), *what)
    except (InvalidName, InvalidMessage) as error:
        return str(error)
    return f"{value!r} is invalid"


def _pair(header: dict[str, Any] | tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Return name and value of an element of Kafka's array, or of an entry of a map."""
    if header is None:
        raise InvalidMessage("an element of the array is null")
    return (header["key"], header["value"]) if isinstance(header, dict) else header


def _header(name: str, value: str | bytes | None) -> str:
    """Return the value of a header as text; empty for a missing value."""
    try:
        return value.decode() if isinstance(value, bytes) else value or ""
    except UnicodeDecodeError:
        raise InvalidMessage(
            f"header {name!r} is not UTF-8, and headers are texts: base64(value) makes one of it"
        ) from None
