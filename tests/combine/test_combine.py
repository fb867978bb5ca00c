"""Pairs of features, compared with the reference model: some here, all by `make combine`."""

from collections.abc import Iterator
from itertools import combinations

import pytest

from tests.combine.entries import FACES, OPTIONS, TWELVE, UNSET
from tests.combine.rows import Tables, rows
from tests.combine.run import Stage, stage
from tests.reference.model import refusal

_OF_FACE = {"consumer": 24, "inline": 12, "lease": 10, "kombu": 10}
_FEW = 6  #: rows of any other face


@pytest.fixture(scope="module")
def theatre() -> Iterator[Stage]:
    with stage() as one:
        yield one


def _some(face: str) -> list[int]:
    """Return the numbers of rows that are far from each other."""
    count = len(rows(face))
    return sorted({number * count // _OF_FACE.get(face, _FEW) for number in range(_OF_FACE.get(face, _FEW))})


@pytest.mark.parametrize(("face", "number"), [(face, number) for face in FACES for number in _some(face)])
def test_reliq_does_what_the_model_says(theatre: Stage, face: str, number: int) -> None:
    theatre.tell(rows(face)[number])


@pytest.mark.combine
@pytest.mark.parametrize(("face", "number"), [(face, number) for face in FACES for number in range(len(rows(face)))])
def test_each_pair(theatre: Stage, face: str, number: int) -> None:
    theatre.tell(rows(face)[number])


@pytest.mark.combine
@pytest.mark.parametrize("number", range(len(rows("consumer", deep=True))))
def test_each_triple_of_the_twelve(theatre: Stage, number: int) -> None:
    theatre.tell(rows("consumer", deep=True)[number])


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
