"""Rows of a DataFrame as chunks: Arrow batches are checked and encoded on the executors."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.contract import values
from reliq.contract.values import is_id
from reliq.errors import InvalidName, Unroutable
from reliq.model.element import Extra, Failure, first_element, first_element_apart
from reliq.model.outgoing import reference_to
from reliq.ops.chunks import DEAD_PLACE, Chunk, bodies_chunk, framed, placed_chunk
from reliq.spark import encoding
from reliq.spark.encoding import BYTES
from reliq.spark.fields import Columns, Fields
from reliq.spark.overridden import Overridden, overridden_in
from reliq.spark.places import places_of
from reliq.spark.refused import Problem, Refused, Tally
from reliq.spark.rules import Rules
from reliq.spark.spread import Buckets, Spread
from reliq.spark.targets import Targets
from reliq.spark.write_columns import WriteColumns

_encode = msgspec.msgpack.Encoder().encode


class Rows:
    """Encodes the rows of one partition of Spark. Ids are `<prefix>-<row>` unless there is an `id` column."""

    def __init__(
        self, prefix: str, partition: int, columns: WriteColumns, rules: Rules, targets: Targets, spread: Spread
    ) -> None:
        self._prefix = f"{prefix}-"
        self._partition = partition
        self._columns = columns
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
        if self._columns.overridden is not None:
            self.overridden += overridden_in(batch.column(self._columns.overridden), self._targets.queue)
        fields = Fields(self._columns, self._rules, self._targets.column, self._prefix, self.row, refused).of(batch)
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

    def _queues(self, column: pa.Array | None, refused: Refused) -> dict[str, tuple[str, ...]]:
        """Return the queues for each value of the column that routes the rows."""
        queues: dict[str, tuple[str, ...]] = {}
        if column is None:
            return queues
        name = self._targets.column
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
