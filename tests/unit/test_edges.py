"""Small rules at the edges of their ranges: each found no test when the mutants of `make mutants` broke it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reliq.features.batches.steps import waits
from reliq.model.found import CancelledMany
from reliq.model.partitions import Layout
from reliq.model.unencodable import why_not_json
from reliq.ops import command
from reliq.ops.topology import Part, merged
from reliq.protocol.settlement import settled_before

WEEK_MS = 7 * 86_400_000


@pytest.mark.parametrize(
    ("layout", "names"),
    [
        (Layout(before=1), ["q"]),
        (Layout(("1", "2", "3"), before=1), ["q"]),
        (Layout(("1", "2", "3"), before=2), ["q", "q@partition.1"]),
        (Layout(("1",), ("2", "3"), before=4), ["q", "q@partition.1", "q@partition.2", "q@partition.3"]),
    ],
)
def test_earlier_homes_are_as_many_partitions_as_there_were_before_the_change(layout, names):
    assert layout.earlier("q") == names


def nested(levels: int, innermost: object) -> object:
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(("levels", "text"), [(200, "set"), (201, "nested more than 200 levels deep")])
def test_what_is_not_json_is_looked_for_two_hundred_levels_deep(levels, text):
    assert text in why_not_json(nested(levels, {1}), TypeError("?"))


@pytest.mark.parametrize(
    ("fields", "waiting"),
    [
        ({}, False),
        ({"state": "open"}, True),
        ({"state": "open", "age": WEEK_MS + 1000}, False),
        ({"state": "closed"}, False),
        ({"state": "abandoned", "children": 0}, False),
        ({"state": "closed", "children": 1}, True),
        ({"state": "open", "age": WEEK_MS + 1000, "children": 2}, True),
    ],
)
def test_a_batch_waits_for_its_producer_a_week_long_and_for_other_batches(fields, waiting):
    now = 1_700_000_000_000
    record = {name: str(value).encode() for name, value in fields.items() if name != "age"}
    if fields:
        record["opened"] = str(now - fields.get("age", 0)).encode()
    assert waits(record, now) is waiting


def test_a_message_that_is_not_held_and_was_not_lost_was_settled_before():
    messages: Any = [
        SimpleNamespace(element=b"held", lost=False),
        SimpleNamespace(element=b"settled", lost=False),
        SimpleNamespace(element=b"taken back", lost=True),
    ]
    consumer: Any = SimpleNamespace(held={b"held"})
    assert [message.element for message in settled_before(consumer, messages)] == [b"settled"]


@pytest.mark.parametrize(("answers", "whole"), [([b"a"], b"a"), ([b"a", b"b"], b"ab"), ([b"a", b"b", b"c"], b"abc")])
def test_the_answers_of_nodes_to_one_request_are_put_together(answers, whole):
    request = command("GET", "k")
    parts = [Part(cast("Any", (str(number), 1)), request) for number in range(len(answers))]
    assert merged(request, parts, answers) == whole


def test_without_messages_nothing_was_cancelled():
    assert CancelledMany() == CancelledMany(cancelled=0, told=0)
