"""The rows: each pair of entries that go together is in one of them; in deep ones also each triple of the twelve."""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any

from allpairspy import AllPairs

from tests.combine.entries import (
    ACTS,
    DEEDS,
    FACES,
    LAYOUTS,
    MOMENTS,
    OPTIONS,
    RULES,
    RULES_OF_FLOWS,
    SETTINGS,
    SIZES,
    TWELVE,
    WAYS,
    of_face,
)

_TRIES = 20  #: to complete a row
Row = Mapping[str, Any]
Choice = tuple[str, int]  #: a field, and the number of its value
Chosen = frozenset[Choice]


class Tables:
    """The fields of a row, and which of their values go together."""

    def __init__(self, face: str) -> None:
        fields: dict[str, Sequence[Any]] = {
            "way": tuple(WAYS), "outcome": FACES[face], "act": ACTS, "moment": MOMENTS, "size": SIZES,
            "partitions": LAYOUTS, "deed": DEEDS, "on_failure": RULES_OF_FLOWS, **OPTIONS, **SETTINGS,
        }  # fmt: skip
        self.fields = dict(sorted(fields.items(), key=lambda one: -len(one[1])))
        rules = [*RULES, *of_face(face)]
        self._rules = {name: [rule for rule in rules if name in rule[0]] for name in fields}

    def allows(self, row: Mapping[str, int], name: str) -> bool:
        """Whether the value of a field goes together with those that are chosen."""
        return all(
            holds(*(self.fields[one][row[one]] for one in needs))
            for needs, holds in self._rules[name]
            if all(one in row for one in needs)
        )

    def choices(self, strength: int, names: Iterable[str]) -> set[Chosen]:
        """Return all that so many fields can be together."""
        found = set()
        for fields in combinations(names, strength):
            for numbers in product(*(range(len(self.fields[one])) for one in fields)):
                row = dict(zip(fields, numbers, strict=True))
                if all(self.allows(row, one) for one in fields):
                    found.add(frozenset(row.items()))
        return found

    def complete(self, begun: Chosen, wanted: set[Chosen], chance: random.Random) -> dict[str, int] | None:
        """Return a row with these choices and many of the wanted ones; None if there is none."""
        row = dict(begun)
        pairs = {one for one in wanted if len(one) == 2}
        for name in chance.sample(list(self.fields), len(self.fields)):
            if name in row:
                continue
            best, most = None, -1
            for number in chance.sample(range(len(self.fields[name])), len(self.fields[name])):
                if not self.allows({**row, name: number}, name):
                    continue
                new = sum(frozenset(((name, number), one)) in pairs for one in row.items())
                if new > most:
                    best, most = number, new
            if best is None:
                return None
            row[name] = best
        return row


def _choices_in(row: Mapping[str, int], triples: bool) -> Iterable[Chosen]:
    yield from map(frozenset, combinations(row.items(), 2))
    if triples:
        yield from map(frozenset, combinations([one for one in row.items() if one[0] in TWELVE], 3))


@cache
def rows(face: str, deep: bool = False) -> tuple[Row, ...]:
    """Return rows for a face with all pairs; `deep`: with all triples of the twelve entries, too."""
    first = next(one for one in FACES if _kind(one) == _kind(face))
    made = _made(face, deep) if first == face else rows(first, deep)
    return tuple({**row, "face": face} for row in made)


def _kind(face: str) -> object:
    """Faces of one kind have the same rows."""
    return FACES[face], len(of_face(face))


def _made(face: str, deep: bool) -> tuple[Row, ...]:
    tables, chance = Tables(face), random.Random(1)
    names = list(tables.fields)
    wanted = tables.choices(2, names) | (tables.choices(3, TWELVE) if deep else set())

    def goes_together(numbers: Sequence[int]) -> bool:
        return tables.allows(dict(zip(names, numbers, strict=False)), names[len(numbers) - 1])

    found: list[dict[str, int]] = []

    def keep(row: dict[str, int]) -> None:
        found.append(row)
        wanted.difference_update(_choices_in(row, deep))

    for numbers in AllPairs([list(range(len(one))) for one in tables.fields.values()], filter_func=goes_together):
        keep(dict(zip(names, numbers, strict=True)))
    for choice in sorted(wanted, key=sorted):
        # allpairspy leaves out what it cannot complete at its first try.
        tries = (tables.complete(choice, wanted, chance) for _ in range(_TRIES if choice in wanted else 0))
        if (row := next((one for one in tries if one is not None), None)) is not None:
            keep(row)
    return tuple({name: tables.fields[name][number] for name, number in row.items()} for row in found)
