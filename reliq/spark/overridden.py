"""Rows whose column `queue` names another queue than the option queue, which is for all rows."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Overridden(NamedTuple):
    """How many rows these are, and a queue that is named."""

    rows: int = 0
    queue: str = ""

    def __add__(self, other: object) -> "Overridden":  # not that of tuples
        if not isinstance(other, Overridden):
            return NotImplemented
        return Overridden(self.rows + other.rows, self.queue or other.queue)


def overridden_in(column: pa.Array, queue: str) -> Overridden:
    """Return those in a column of texts; null names no queue."""
    other = column.filter(pc.fill_null(pc.not_equal(column, queue), fill_value=False))
    if not len(other):
        return Overridden()
    return Overridden(len(other), other[0].cast(pa.binary()).as_py().decode(errors="replace"))
