"""Rows that cannot be sent: the first problem of each, counted by reason, and what becomes of them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reliq.errors import InvalidMessage

_SHOWN = 5


class Problem(NamedTuple):
    """Why a row cannot be sent. `reason`: short, for counts; `sentence`: with column, row and value."""

    column: str
    reason: str
    sentence: str


@dataclass
class Tally:
    """The refused rows of a task or a job, by reason, and some of them in full."""

    reasons: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)

    def add(self, problem: Problem) -> None:
        self.reasons[problem.reason] += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(problem.sentence)

    def merge(self, other: "Tally") -> None:
        self.reasons += other.reasons
        self.shown = (self.shown + other.shown)[:_SHOWN]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        return f"{self.reasons.total()} rows ({reasons}), such as {'; '.join(self.shown)}"


class Refused:
    """The refused rows of one batch.

    `fail`: raise InvalidMessage at the first of them. `where`: makes the text for a column and a row of the batch.
    """

    def __init__(self, fail: bool, where: Callable[[str, int], str]) -> None:
        self.problems: dict[int, Problem] = {}
        self._fail = fail
        self._where = where

    def each(self, column: str, wrong: pa.Array, reason: str, what: Callable[[int], str]) -> None:
        """Refuse the rows for which `wrong` is true; `what`: what is wrong with a row."""
        for row in pc.indices_nonzero(wrong).to_pylist():
            self.one(column, row, reason, what(row))

    def one(self, column: str, row: int, reason: str, what: str) -> None:
        sentence = f"{self._where(column, row)}: {what}"
        if self._fail:
            raise InvalidMessage(sentence)
        self.problems.setdefault(row, Problem(column, f"{column} {reason}", sentence))

    def good(self, count: int) -> pa.Array | None:
        """Return which rows of the batch can be sent, or None for all of them."""
        if not self.problems:
            return None
        good = np.ones(count, dtype=bool)
        good[list(self.problems)] = False
        return pa.array(good)
