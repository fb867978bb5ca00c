"""Rows of a DataFrame as chunks: Arrow batches are checked and encoded on the executors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from reliq.contract import values
from reliq.contract.values import check_id, is_id
from reliq.errors import InvalidMessage, InvalidName, Unroutable
from reliq.model.element import Extra, Failure, first_element, first_element_apart
from reliq.model.outgoing import check_headers, check_key, reference_to, too_large
from reliq.ops.chunks import DEAD_PLACE, Chunk, bodies_chunk, framed, placed_chunk
from reliq.spark import encoding
from reliq.spark.as_json import row_texts, texts_of
from reliq.spark.encoding import BYTES
from reliq.spark.layout import Layout
from reliq.spark.names import names_of, not_text, rows_not_text
from reliq.spark.overridden import Overridden, overridden_in
from reliq.spark.places import places_of
from reliq.spark.refused import Problem, Refused, Tally
from reliq.spark.rules import Rules
from reliq.spark.spread import Buckets, Spread
from reliq.spark.targets import Targets

Columns = dict[str, pa.Array]

_IDS = r"^[\x21-\x7e]{1,128}$"  #: as in reliq.model.element.check_id
_MAX_MS = round(values.MAX_DELAY_SECONDS * 1000)

_encode = msgspec.msgpack.Encoder().encode


class Rows:
    """Encodes the rows of one partition of Spark. Ids are `<prefix>-<row>` unless there is an `id` column."""

    def __init__(
        self, prefix: str, partition: int, layout: Layout, rules: Rules, targets: Targets, spread: Spread
    ) -> None:
        self._prefix = f"{prefix}-"
        self._partition = partition
        self._layout = layout
        self._rules = rules
        self._targets = targets
        self._spread = spread
        self.row = 0  #: the first row of the next batch, counted in the partition
        self.unroutable = 0  #: rows with a topic that no queue is bound to
        self.tally = Tally()  #: rows that cannot be sent, if they do not fail the job
        self.overridden = Overridden()

    def chunks(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Iterator[Chunk]]]:
        """Yield homes of queues, each with its chunks. All rows are checked before the first result.

        Raises InvalidMessage, naming the column and the row, for a row that cannot be sent, unless `invalid` says
        otherwise.
        """
        refused = Refused(self._rules.invalid == "fail", self._where)
        if self._layout.overridden is not None:
            self.overridden += overridden_in(batch.column(self._layout.overridden), self._targets.queue)
        given = dict(zip(self._layout.names, batch.columns, strict=True))
        fields = self._fields(given, self._readable(given, refused), batch.num_rows, refused)
        queues = self._queues(fields.get("target"), refused)
        problems = refused.problems
        if problems and self._rules.invalid == "dead":
            yield self._rules.dead_queue, self._dead(fields, problems)
        for problem in problems.values():
            self.tally.add(problem)
        good = refused.good(batch.num_rows)
        if good is not None:
            fields = {name: column.filter(good) for name, column in fields.items()}
        if len(fields["body"]):
            encoded, buckets = self._encoded(fields), Buckets(fields)
            for queue, rows in self._routed(fields.get("target"), queues):
                for home, share in self._spread.shares(queue, rows, buckets):
                    yield home, (encoded if share is None else encoded.take(share)).chunks()
        self.row += batch.num_rows

    def _readable(self, given: Columns, refused: Refused) -> Columns:
        """Refuse rows with text that is not UTF-8, unless it is the body as it is; return the columns without it."""
        readable: Columns = {}
        for name, column in given.items():
            is_body = self._layout.whole_row or (name == "value" and not self._is_body_itself)
            if is_body or name in self._layout.options:
                wrong = rows_not_text(column)
                if wrong is not None:
                    refused.each(name, wrong, "is no text", lambda _: "has text that is not UTF-8")
                    column = column.take(pc.if_else(wrong, pa.scalar(None, pa.int64()), pa.array(range(len(column)))))
            readable[name] = column
        return readable

    def _fields(self, body: Columns, given: Columns, count: int, refused: Refused) -> Columns:
        """Return the columns in the form in which they are encoded; what a refused row has there does not matter."""
        fields = {
            "number": encoding.numbers(self.row, count),
            "body": self._bodies(body, refused),
            "id": self._ids(self._option(given, "id"), refused),
            "key": self._keys(self._option(given, "key"), refused),
            "headers": self._headers(self._option(given, "headers"), self._option(given, "key"), count, refused),
            "priority": self._priorities(self._option(given, "priority"), refused),
            "delay": self._times("delay_ms", 0, self._option(given, "delay_ms"), refused),
            "ttl": self._times("ttl_ms", 1, self._option(given, "ttl_ms"), refused),
            "dedup": self._dedup_keys(self._option(given, "dedup_key"), refused),
            "target": given[self._targets.column] if self._targets.column else None,
        }
        return {name: column for name, column in fields.items() if column is not None}

    def _option(self, given: Columns, name: str) -> pa.Array | None:
        return given[name] if name in self._layout.options else None

    def _bodies(self, given: Columns, refused: Refused) -> pa.Array:
        if self._layout.whole_row:
            kinds = [one.dataType for one in self._layout.schema.fields]
            bodies = row_texts(self._layout.schema.names, list(given.values()), kinds).cast(BYTES)
        else:
            self._refuse_nulls("value", given["value"], refused)
            bodies = self._values(given["value"])
        sizes = pc.binary_length(bodies)
        limit, column = self._rules.max_body, "row" if self._layout.whole_row else "value"
        if (pc.max(sizes).as_py() or 0) > limit:
            large = pc.greater(sizes, limit)
            refused.each(column, large, "is too large", lambda row: too_large(sizes[row].as_py(), limit, "maxBody"))
        return bodies

    def _values(self, column: pa.Array) -> pa.Array:
        if self._is_body_itself:
            return encoding.as_bytes(column)
        return texts_of(column, self._layout.kind("value")).cast(BYTES)

    @property
    def _is_body_itself(self) -> bool:
        """Whether the column `value` is the body without a conversion."""
        kinds = (spark.StringType, spark.CharType, spark.VarcharType, spark.BinaryType)
        return isinstance(self._layout.kind("value"), kinds)

    def _ids(self, column: pa.Array | None, refused: Refused) -> pa.Array | None:
        if column is None:
            return None
        ids = names_of(column)
        fit = pc.match_substring_regex(ids, _IDS)
        if pc.all(fit).as_py() is False:
            refused.each("id", pc.invert(fit), "is invalid", lambda row: _error_of(check_id, ids[row].as_py()))
        if not ids.null_count:
            return ids
        return pc.coalesce(ids, encoding.joined(self._prefix.encode(), encoding.numbers(self.row, len(ids))))

    def _keys(self, column: pa.Array | None, refused: Refused) -> pa.Array | None:
        """Return the ordering keys; None if no row has one."""
        if column is None or self._rules.key_as == "header":
            return None
        return self._texts("key", column, values.MAX_KEY_BYTES, refused)

    def _dedup_keys(self, column: pa.Array | None, refused: Refused) -> pa.Array | None:
        return None if column is None else self._texts("dedup_key", column, self._rules.max_body, refused)

    def _texts(self, name: str, column: pa.Array, longest: int, refused: Refused) -> pa.Array | None:
        if column.null_count == len(column):
            return None
        texts = names_of(column)
        refused.each(name, not_text(texts), "is no text", lambda row: f"{texts[row].as_py()!r} is not UTF-8")
        sizes = pc.binary_length(texts)
        unfit = pc.or_(pc.equal(sizes, 0), pc.greater(sizes, longest))
        refused.each(name, unfit, "is invalid", lambda row: _error_of(check_key, texts[row].as_py(), name))
        return texts

    def _headers(self, column: pa.Array | None, keys: pa.Array | None, count: int, refused: Refused) -> pa.Array | None:
        """Return the encoded headers; None if no row has any of its own."""
        if keys is not None and self._rules.key_as == "order":
            keys = None
        if column is None and keys is None:
            return None
        given = column.to_pylist() if column is not None else [None] * count
        names = names_of(keys).to_pylist() if keys is not None else [None] * count
        rows = enumerate(zip(given, names, strict=True))
        return pa.array([self._one_headers(row, some, key, refused) for row, (some, key) in rows], BYTES)

    def _one_headers(self, row: int, given: list[Any] | None, key: bytes | None, refused: Refused) -> bytes:
        try:
            own: dict[str, list[str]] = {}
            for name, value in map(_pair, given or ()):
                own.setdefault(name, []).append(_header(name, value))
            if key is not None and (text := _header("key", key)) not in own.get("key", ()):
                own.setdefault("key", []).append(text)
            once = {name: self._once(name, values) for name, values in own.items()}
            return _encode(check_headers({**self._rules.trace, **once}))
        except InvalidMessage as error:
            refused.one("key" if key is not None and not given else "headers", row, "are invalid", str(error))
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

    def _priorities(self, column: pa.Array | None, refused: Refused) -> pa.Array | None:
        if column is None:
            return None
        known = pa.array(["high", "normal", "low"], column.type)
        wrong = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, known)))
        refused.each(
            "priority", wrong, "is invalid", lambda row: f"is {column[row].as_py()!r}: it is high, normal or low"
        )
        return column

    def _times(self, name: str, least: int, column: pa.Array | None, refused: Refused) -> pa.Array | None:
        """Return ms; None if no row has any."""
        if column is None or column.null_count == len(column):
            return None
        times = column.cast(pa.int64())
        wrong = pc.or_(pc.less(times, least), pc.greater(times, _MAX_MS))
        refused.each(name, wrong, "is invalid", lambda row: f"is {times[row]}: it must be from {least} to {_MAX_MS}")
        return times

    def _queues(self, column: pa.Array | None, refused: Refused) -> dict[str, tuple[str, ...]]:
        """Return the queues for each value of the column that routes the rows."""
        queues: dict[str, tuple[str, ...]] = {}
        if column is None:
            return queues
        name = self._targets.column
        self._refuse_nulls(name, column, refused)
        for value in column.drop_null().unique().to_pylist():
            try:
                queues[value] = self._targets.of(value)
            except (InvalidName, Unroutable) as error:
                reason, what = "is unbound" if isinstance(error, Unroutable) else "is invalid", str(error)
                refused.each(name, pc.equal(column, value), reason, lambda _, what=what: what)  # type: ignore[misc]
        return queues

    def _encoded(self, fields: Columns) -> "_Encoded":
        bodies, count = fields["body"], len(fields["body"])
        sizes = pc.binary_length(bodies).to_numpy()
        apart = sizes > values.INLINE_BODY_BYTES if sizes.max() > values.INLINE_BODY_BYTES else None
        references = None if apart is None else encoding.references(sizes, apart)
        ids = [fields["id"]] if "id" in fields else [self._prefix.encode(), fields["number"]]
        expires = pc.add(fields["ttl"], encoding.now_ms()) if "ttl" in fields else None
        topics = fields["target"].cast(BYTES) if self._targets.column == "topic" else None
        batch = encoding.same(self._rules.batch.encode(), count) if self._rules.batch else None
        extras = encoding.extras(expires, topics, fields.get("key"), fields.get("priority"), references, batch)
        headers = fields.get("headers", _encode(self._rules.trace) if self._rules.trace else None)
        inline = bodies if apart is None else pc.if_else(pa.array(apart), pa.scalar(b"", BYTES), bodies)
        frames = encoding.frames(ids, inline, headers, extras, apart)
        places = places_of(fields, count, self._rules.window)
        if batch is not None and places is None:
            places = encoding.same(b"0", count)  # a script counts them as it moves them
        return _Encoded(frames, places, references, bodies)

    def _routed(
        self, column: pa.Array | None, queues: dict[str, tuple[str, ...]]
    ) -> list[tuple[str, np.ndarray | None]]:
        """Return the queues, each with the rows that go there; None = all rows."""
        if column is None:
            return [(self._targets.queue, None)]
        distinct = column.dictionary_encode()
        values = distinct.indices.to_numpy()
        takers: dict[str, list[int]] = {}
        for number, value in enumerate(distinct.dictionary.to_pylist()):
            for queue in queues[value]:
                takers.setdefault(queue, []).append(number)
            if not queues[value]:
                self.unroutable += int(np.count_nonzero(values == number))
        return [(queue, np.flatnonzero(np.isin(values, numbers))) for queue, numbers in takers.items()]

    def _dead(self, fields: Columns, problems: Mapping[int, Problem]) -> Iterator[Chunk]:
        """Yield the refused rows as dead letters, each with what its body would be, as far as it has room."""
        now = encoding.now_ms()
        for row, problem in problems.items():
            body = (fields["body"][row].as_py() or b"")[: self._rules.max_body]
            identity = self._prefix + fields["number"][row].as_py().decode()
            given = fields["id"][row].as_py() if "id" in fields else None
            if given is not None and is_id(given.decode(errors="replace")):
                identity = given.decode()
            reference = reference_to(body)
            failure = Failure(now, "spark", "InvalidRow", problem.sentence)
            extra = Extra(reason="invalid", errors=(failure,), apart=reference)
            headers = dict(self._rules.trace)
            if reference:
                yield bodies_chunk(1, framed(reference) + framed(body))
                element = first_element_apart(identity, now, headers, extra)
            else:
                element = first_element(identity, now, headers, body, extra)
            yield placed_chunk(1, framed(DEAD_PLACE) + framed(element))

    def _refuse_nulls(self, name: str, column: pa.Array, refused: Refused) -> None:
        if column.null_count:
            refused.each(name, column.is_null(), "is null", lambda _: "is null")

    def _where(self, column: str, row: int) -> str:
        which = "the whole row" if column == "row" else f"column `{column}`"
        return f"{which} in row {self.row + row} of partition {self._partition}"


@dataclass(frozen=True)
class _Encoded:
    """Encoded rows. `places`: None if no row has to be placed; `references`: None if all bodies are in elements."""

    frames: pa.Array
    places: pa.Array | None
    references: pa.Array | None
    bodies: pa.Array

    def take(self, rows: np.ndarray) -> "_Encoded":
        places = None if self.places is None else self.places.take(rows)
        if self.references is None:
            return _Encoded(self.frames.take(rows), places, None, self.bodies)
        return _Encoded(self.frames.take(rows), places, self.references.take(rows), self.bodies.take(rows))

    def chunks(self) -> Iterator[Chunk]:
        """Yield the bodies that are stored apart before their elements: a message that is visible has its body."""
        if self.references is not None:
            references, bodies = self.references, self.bodies
            if references.null_count:
                apart = references.is_valid()
                references, bodies = references.filter(apart), bodies.filter(apart)
            yield from encoding.body_chunks(encoding.stored(references, bodies))
        frames = self.frames if self.places is None else encoding.placed(self.places, self.frames)
        yield from encoding.chunks(frames, self.places is not None)


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
