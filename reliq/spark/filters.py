"""Spark's filters that a reader applies itself: rows that do not match never leave the Python worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

_COLUMNS = frozenset(
    {"id", "routing_key", "deliveries", "failures", "enqueued_at", "due_at", "died_at", "reason", "error_class"}
)
#: the supported filters, with the names of PyArrow's functions
_COMPARE: dict[type[Filter], str] = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
    In: "is_in",
}
_NARROWS_BELOW = {"equal", "greater", "greater_equal"}
_NARROWS_ABOVE = {"equal", "less", "less_equal"}


@dataclass(frozen=True)
class Condition:
    """One column compared with a value; a null matches nothing."""

    column: str
    compare: str
    value: Any

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        values = batch.column(self.column)
        if self.compare == "is_in":
            return pc.is_in(values, value_set=pa.array(self.value, values.type), skip_nulls=True)
        return pc.call_function(self.compare, [values, pa.scalar(self.value, values.type)])

    def scores(self, column: str) -> tuple[float, float]:
        """Return the range of scores (ms of `column`) outside of which nothing matches."""
        if self.column != column or self.compare == "is_in":
            return float("-inf"), float("inf")
        ms = self.value.timestamp() * 1000
        lowest = ms - 1 if self.compare in _NARROWS_BELOW else float("-inf")
        highest = ms + 1 if self.compare in _NARROWS_ABOVE else float("inf")
        return lowest, highest


def condition_of(one: Filter) -> Condition | None:
    """Return the condition for a filter, or None, in which case Spark applies the filter."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if type(one) not in _COMPARE or len(path) != 1 or path[0] not in _COLUMNS:
        return None
    value: Any = one.value  # type: ignore[attr-defined]
    return Condition(path[0], _COMPARE[type(one)], [*map(_aware, value)] if isinstance(one, In) else _aware(value))


def matching(batch: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    for condition in conditions:
        batch = batch.filter(condition.mask(batch))
    return batch


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
