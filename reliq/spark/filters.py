"""Spark's filters, as far as a reader applies them itself: rows that do not match never reach Spark."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from reliq.spark.columns import Row

_COLUMNS = frozenset(
    {"id", "routing_key", "deliveries", "failures", "enqueued_at", "due_at", "died_at", "reason", "error_class"}
)
_COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Condition:
    """One column compared with a value; a null matches nothing."""

    column: str
    compare: Callable[[Any, Any], bool]
    value: Any

    def matches(self, row: Row) -> bool:
        found = getattr(row, self.column)
        return found is not None and self.compare(found, self.value)

    def scores(self, column: str) -> tuple[float, float]:
        """The range of scores, ms of `column` with a fraction below, outside of which nothing matches."""
        if self.column != column or self.compare is _contains:
            return float("-inf"), float("inf")
        ms = self.value / 1000
        lowest = ms - 1 if self.compare in (operator.eq, operator.gt, operator.ge) else float("-inf")
        highest = ms + 1 if self.compare in (operator.eq, operator.lt, operator.le) else float("inf")
        return lowest, highest


def condition_of(one: Filter) -> Condition | None:
    """The condition that a filter is, or None: Spark applies it then."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in _COLUMNS:
        return None
    if type(one) in _COMPARE:
        return Condition(path[0], _COMPARE[type(one)], _plain(one.value))  # type: ignore[attr-defined]
    if isinstance(one, In):
        return Condition(path[0], _contains, frozenset(_plain(value) for value in one.value))
    return None


def _contains(found: Any, values: Any) -> bool:
    return found in values


def _plain(value: Any) -> Any:
    """A time as microseconds since the epoch, as rows have it."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return value
