"""Calls with values of a wrong type: reliq refuses them in its own words, before anything changes."""

import inspect
import itertools
import re
from decimal import Decimal
from typing import Any

import pytest

import reliq
import reliq.testing

WRONG = [5, True, 0, "x", "", b"x", [], [5], {}, {"a": 1}, 1.5, float("nan"), Decimal(1), object(), "\ud800"]
GROUPS = {  #: what has the calls, and those of them that read or change what the queue has
    "dead": ["list", "get", "redrive", "purge"],
    "delayed": ["list", "run"],
    "queue": ["search", "find", "cancel", "receive", "change_visibility", "delete_received"],
}
SAME_FOR_ALL = {"progress", "wait"}  #: a function that is called later; a duration, for which the call would wait


def calls_of(call, right):
    """Give each parameter each value, with right ones for the others that a call needs."""
    parameters = inspect.signature(call).parameters.values()
    needed = {one.name: right[one.name] for one in parameters if one.name in right and one.default is one.empty}
    for one in parameters:
        names = sorted(reliq.DeadLetterFilters.__optional_keys__) if one.kind is one.VAR_KEYWORD else [one.name]
        for name, value in itertools.product(set(names) - SAME_FOR_ALL, WRONG):
            if one.kind is one.VAR_POSITIONAL:
                yield name, value, lambda value=value: call(value)
            else:
                yield name, value, lambda name=name, value=value: call(**{**needed, name: value})


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in GROUPS.items() for name in names])
def test_a_value_of_any_type_is_taken_or_refused_by_an_error_of_reliq(app, group, name):
    queue, unexpected = app.queue("q"), []
    queue.send("x")
    (received,) = queue.receive()
    right = {"text": "x", "id": "x", "changes": [(received.receipt, 60)], "receipts": [received.receipt]}
    for parameter, value, call in calls_of(getattr(queue if group == "queue" else getattr(queue, group), name), right):
        try:
            call()
        except reliq.ReliqError:
            pass
        except Exception as error:
            unexpected.append((parameter, value, repr(error)))
    assert not unexpected


def test_a_wrong_value_never_selects_other_messages(app):
    queue = app.queue("q")
    queue.send("x", delay="1h", headers={"a": "1"})
    wrong: list[dict[str, Any]] = [
        {"headers": 0},
        {"headers": ""},
        {"headers": []},
        {"headers": False},
        {"error_class": 5},
    ]
    for filters in wrong:
        with pytest.raises(reliq.InvalidSetting):
            queue.dead.purge(all=True, **filters)
        with pytest.raises(reliq.InvalidSetting):
            queue.delayed.run(all=True, **filters)
    for call in (queue.dead.purge, queue.delayed.run):
        with pytest.raises(reliq.InvalidSetting, match="all is 'no'"):
            call(all="no")
    assert queue.stats().delayed == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ids": 5}, "ids is 5: give one id, or several in a list"),
        ({"headers": "x"}, "all of them valid Unicode; they are of type str"),
        ({"headers": {"a": 1}}, "a filter by headers: headers must map texts to texts"),
        ({"error_text": 5}, "error_text is 5: give a text of valid Unicode"),
        ({"rate": "x"}, "rate, in messages a second, is 'x': it must be a number from 0.01 to 1,000,000"),
        ({"rate": True}, "rate, in messages a second, is True"),
        ({"rate": 1, "stop_above": "x"}, "stop_above, a share, is 'x': it must be a number from 0 to 1"),
        ({"dry_run": "no"}, "dry_run is 'no': it must be true or false"),
    ],
)
def test_what_a_redrive_says(app, options, says):
    with pytest.raises(reliq.InvalidSetting, match=re.escape(says)):
        app.queue("q").dead.redrive(**options)


def test_the_cursor_of_a_page_is_checked_with_several_partitions_too(app):
    queue = app.queue("q")
    for count in (1, 3):
        queue.configure(partitions=count)
        for after in (5, b"x", "x"):
            with pytest.raises(reliq.InvalidSetting, match="after is "):
                queue.dead.list(after=after)
            with pytest.raises(reliq.InvalidSetting, match="after is "):
                queue.delayed.list(after=after)


def test_one_id_is_a_filter_of_its_own(app):
    """A text is one id, and not its letters."""
    assert app.queue("q").dead.purge(ids="abc") == 0
    queue = app.queue("q")
    for one in ("abc", "a"):
        queue.send("x", id=one)
    reject_all(app)
    assert [letter.id for letter in queue.dead.list(ids="a")] == ["a"]
    assert queue.dead.purge(ids="abc") == 1
    assert [letter.id for letter in queue.dead.list()] == ["a"]


def reject_all(app):
    """Make dead letters of the messages of the queue."""

    @app.handler("q")
    def refuse(message):
        raise reliq.Dead("no")

    reliq.testing.work_off(app)


@pytest.mark.parametrize("headers", ["", b"", [], 0, False])
def test_the_headers_of_a_send_are_a_mapping(app, headers):
    with pytest.raises(reliq.InvalidMessage, match="headers must map texts to texts"):
        app.queue("q").send("x", headers=headers)


@pytest.mark.parametrize("receipts", ["abc", 5, [None], [5]])
def test_receipts_are_given_in_a_list(app, receipts):
    with pytest.raises(reliq.InvalidSetting, match="receipt"):
        app.queue("q").delete_received(receipts)
    with pytest.raises(reliq.InvalidSetting, match="receipt"):
        app.queue("q").change_visibility([(one, 1) for one in receipts] if isinstance(receipts, list) else receipts)


@pytest.mark.parametrize("url", [0, False, b"", 5, []])
def test_a_url_is_a_text(url):
    with pytest.raises(reliq.InvalidSetting, match="Redis URL of type"):
        reliq.Reliq(url)
