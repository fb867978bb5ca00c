"""The page that compares reliq with the requirements of another suite: each of them differs, or has its test."""

import re
from pathlib import Path

import pytest

from tests.support.requirements import HOLDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts" / "durable-execution.md").read_text(encoding="utf-8")
#: How many requirements each kind has.
KINDS = {
    "Step": 20, "Wait": 5, "Callback": 19, "Wait for a callback": 15, "Wait for a condition": 13, "Child context": 18,
    "Invoke": 16, "Parallel": 22, "Map": 20,
}  # fmt: skip


def numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(", "):
        first, _, last = part.partition(" to ")
        found += range(int(first), int(last or first) + 1)
    return found


def differences() -> dict[str, list[int]]:
    """What differs by the page, of each kind."""
    found: dict[str, list[int]] = {}
    for kinds, listed, answer in re.findall(r"^\| ([^|]+) \| (\d[^|]*) \| [^|]+ \| (.*) \|$", PAGE, re.MULTILINE):
        assert answer.startswith(("differs", "no"))
        for kind, of_kind in zip(kinds.split(", "), listed.split("; "), strict=True):
            found.setdefault(kind, []).extend(numbers(of_kind))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_requirement_differs_or_has_a_test(kind: str):
    holds = [number for listed, *_ in HOLDS.get(kind, []) for number in numbers(listed)]
    assert sorted(holds + differences().get(kind, [])) == list(range(1, KINDS[kind] + 1))


def test_no_kind_is_forgotten():
    assert HOLDS.keys() | differences().keys() == KINDS.keys()
    assert sum(KINDS.values()) == int(re.findall(r"has (\d+) requirements", PAGE)[0])


def test_what_holds_has_a_test():
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^ *(?:async )?def (test_\w+)\(", written, re.MULTILINE))
    tests = [entry for entries in HOLDS.values() for entry in entries]
    assert [entry for entry in tests if not entry[2] or not set(entry[2]) <= defined] == []
