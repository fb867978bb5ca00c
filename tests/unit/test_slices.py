"""A slice is deleted with its entries, and nothing else, before the tests of the core run (`make test-slices`)."""

import re

import pytest

from tools import test_slices
from tools.test_slices import MARKS, Named, core_tests, left_out_of, slices, without_entries

CORE = """\
from reliq.features.polls import duty as polls
from reliq.features.polls.aio import (
    PollCalls,
    Polls,
)
from reliq.features.pollsters.aio import Pollster
from reliq.protocol.application import Application

__all__ = ["Application", "Polls"]
DUTIES = (First, polls.Duty)
OTHERS = (polls.Duty, First)
ONLY = (polls.Duty,)


class App(PollCalls, Application):
    parts = [one.router for one in (Pollster, polls, Application)]
"""
WITHOUT = """\
from reliq.features.pollsters.aio import Pollster
from reliq.protocol.application import Application

__all__ = ["Application", ]
DUTIES = (First, )
OTHERS = (First,)
ONLY = ()


class App(Application):
    parts = [one.router for one in (Pollster, Application)]
"""
TESTS = """\
from reliq import ops

LIMIT = 3
POLLED = "polls"


def filled(queue):
    return queue.poll(LIMIT)


def test_alone(queue):
    assert queue.stats()


def test_with_a_helper(queue):
    assert filled(queue)


@pytest.mark.parametrize("name", [POLLED])
def test_with_a_decorator(name): ...
"""


def test_the_entries_of_a_slice_are_removed_and_nothing_else():
    assert without_entries(CORE, "polls") == WITHOUT
    assert without_entries(WITHOUT, "polls") == WITHOUT


def test_what_stands_on_a_slice_goes_with_it(monkeypatch):
    monkeypatch.setitem(test_slices.STANDING_ON, "votes", {"reliq/polls": "reliq.features.polls"})
    assert without_entries(CORE, "votes") == WITHOUT
    assert left_out_of("from reliq.features.polls.aio import Polls", re.compile("nothing"), "votes") is None


def test_of_the_modules_of_a_package_those_go_that_stand_on_the_slice(monkeypatch):
    monkeypatch.setitem(test_slices.STANDING_ON, "votes", {"reliq/cli/votes.py": "reliq.cli.votes"})
    core = "from reliq.cli import bench, votes\n\nPARTS = [bench, votes]\n"
    assert without_entries(core, "votes") == "from reliq.cli import bench\n\nPARTS = [bench, ]\n"


def test_any_other_use_of_a_slice_is_named():
    with pytest.raises(Named, match=r"it uses polls: ONLY = polls\.Duty\(\)"):
        without_entries(CORE.replace("ONLY = (polls.Duty,)", "ONLY = polls.Duty()"), "polls")


def test_of_a_file_those_tests_are_left_out_that_use_the_slice():
    assert left_out_of(TESTS, re.compile("poll"), "polls") == ["test_with_a_decorator", "test_with_a_helper"]
    assert left_out_of(TESTS, re.compile("nothing"), "polls") == []
    assert left_out_of("from reliq.features.polls import ops", re.compile("nothing"), "polls") is None


def test_each_slice_has_its_marks_and_leaves_most_tests_to_the_core():
    assert MARKS.keys() == {*slices()}
    for one in slices():
        files, _, left_out = core_tests(test_slices.ROOT, one, test_slices.TESTS)
        assert len(files) > 3 * left_out
