"""The page that compares reliq with the requirements of another suite: each has its line, each line its test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts" / "durable-execution.md").read_text(encoding="utf-8")
#: How many requirements each kind has.
KINDS = {
    "Step": 20, "Wait": 5, "Callback": 19, "Wait for a callback": 15, "Wait for a condition": 13, "Child context": 18,
    "Invoke": 16, "Parallel": 22, "Map": 20,
}  # fmt: skip


def rows(kind: str) -> list[tuple[list[int], str, list[str]]]:
    """The lines of a table: numbers, what reliq has, the names of the tests."""
    section = re.split(r"^## ", PAGE.split(f"## {kind}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    found = []
    for line in re.findall(r"^\| (\d.*) \|$", section, re.MULTILINE):
        numbers, _, here, tests = (cell.strip() for cell in line.split("|"))
        listed: list[int] = []
        for part in numbers.split(", "):
            first, _, last = part.partition(" to ")
            listed += range(int(first), int(last or first) + 1)
        found.append((listed, here, re.findall(r"`(\w+)`", tests)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_requirement_has_one_line(kind: str):
    assert sorted(number for numbers, *_ in rows(kind) for number in numbers) == list(range(1, KINDS[kind] + 1))


def test_no_table_is_forgotten():
    assert sorted(re.findall(r"^## (.*)$", PAGE, re.MULTILINE)) == sorted(KINDS)
    assert sum(KINDS.values()) == int(re.findall(r"has (\d+) requirements", PAGE)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_names_its_test_and_that_test_exists(kind: str):
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^ *(?:async )?def (test_\w+)\(", written, re.MULTILINE))
    for numbers, here, tests in rows(kind):
        assert tests or not here.startswith("yes"), f"{kind} {numbers} holds, and names no test"
        assert set(tests) <= defined, f"{kind} {numbers}"
        assert here.startswith(("yes", "differs", "no"))
