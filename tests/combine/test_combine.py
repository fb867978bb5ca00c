"""Pairs of features, compared with the reference model: some here, all by `make combine`."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from tests.combine.entries import FACES, OPTIONS, TWELVE, UNSET
from tests.combine.rows import Tables, rows
from tests.combine.run import Runner, running
from tests.reference.rules import refusal

_OF_FACE = {"consumer": 12, "inline": 6, "lease": 6, "kombu": 6, "processes": 1}
_FEW = 4  #: rows of any other face
_SLOW = {"processes": 40}  #: faces that take seconds for a row, with the number of rows that are run
_DEEP = ("consumer", "inline")  #: faces with all triples of the twelve
_PARTS = 40  #: tests that the rows of a face are divided into


def _of(face: str) -> int:
    return _OF_FACE.get(face, _FEW)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with running() as one:
        yield one


# Rows are made while a test runs: to make them takes seconds, also where they are only collected.
@pytest.mark.parametrize(("face", "place"), [(face, place) for face in FACES for place in range(_of(face))])
def test_reliq_does_what_the_model_says(runner: Runner, face: str, place: int) -> None:
    """Rows at even distances are run."""
    runner.run(rows(face)[place * len(rows(face)) // _of(face)])


@pytest.mark.combine
@pytest.mark.parametrize(("face", "part"), [(face, part) for face in FACES for part in range(_PARTS)])
def test_each_pair_of_features_does_what_the_model_says(runner: Runner, face: str, part: int) -> None:
    """Of a slow face only the first rows are run, which have most pairs."""
    for row in rows(face)[: _SLOW.get(face)][part::_PARTS]:
        runner.run(row)


@pytest.mark.combine
@pytest.mark.parametrize(("face", "part"), [(face, part) for face in _DEEP for part in range(_PARTS)])
def test_each_triple_of_the_twelve_features_does_what_the_model_says(runner: Runner, face: str, part: int) -> None:
    for row in rows(face, deep=True)[part::_PARTS]:
        runner.run(row)


@pytest.mark.parametrize("face", FACES)
def test_each_pair_that_goes_together_is_in_a_row(face: str) -> None:
    tables = Tables(face)
    found = {
        frozenset((name, tables.fields[name].index(row[name])) for name in fields)
        for row in rows(face)
        for fields in combinations(tables.fields, 2)
    }
    assert tables.choices(2, tables.fields) - found == set()


def test_each_triple_of_the_twelve_that_can_be_is_in_a_row() -> None:
    tables = Tables("consumer")
    found = {
        frozenset((name, tables.fields[name].index(row[name])) for name in fields)
        for row in rows("consumer", deep=True)
        for fields in combinations(TWELVE, 3)
    }
    missing = tables.choices(3, TWELVE) - found
    # Two of three may need a third value that is not the chosen one: such a triple cannot be completed.
    assert len(missing) <= len(found) // 100


def test_no_row_has_options_that_do_not_go_together() -> None:
    for face in FACES:
        for row in rows(face):
            assert refusal({name: row[name] for name in OPTIONS if row[name] != UNSET}) == ""
