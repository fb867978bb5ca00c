"""Tables of the command line: a long name shifts no column, and no name is cut."""

import pytest

from reliq.cli.columns import columns
from tests.support.commands import run

LONG = "q" * 128


def ends(line, words):
    """Where each of these words ends."""
    places, at = [], 0
    for word in words:
        at = line.index(word, at) + len(word)
        places.append(at)
    return places


def test_columns_are_as_wide_as_their_longest_cell():
    assert columns([("name", "n"), ("ab", 1), ("abcdefgh", 1234567)], -6, 4) == [
        "name           n",
        "ab             1",
        "abcdefgh 1234567",
    ]
    assert columns([("a", "b", " more")], -3, 2) == ["a    b  more"]
    assert columns([], -3) == []


@pytest.mark.parametrize("command", ["stats", "audit", "partitions"])
def test_a_long_name_shifts_no_column(app, command):
    for queue in ("orders", LONG):
        app.queue(queue).send_many(["x"] * 3)
    names = ["orders", LONG] if command != "partitions" else [LONG]
    done = run(command, *names, url=app.url)
    assert done.returncode == 0
    assert LONG in done.stdout
    lines = done.stdout.splitlines()[command == "partitions" :]
    numbers = {"stats": ["3"], "audit": ["3 enqueued"], "partitions": ["3"]}[command]
    titles = {"stats": ["ready"], "audit": ["3 enqueued"], "partitions": ["ready"]}[command]
    assert {tuple(ends(line, titles if line is lines[0] else numbers)) for line in lines} == {
        tuple(ends(lines[-1], numbers))
    }
