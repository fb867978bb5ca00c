"""batch_open, batch_change, batch_note and batch_end: the record of a batch, and what its parent knows of it."""

import pytest

from reliq.features.batches import ops
from reliq.features.batches.model import Counts
from reliq.model.keys import BATCHES, batch_record
from tests.support.state import KEYS

OUTER, INNER = batch_record("outer"), batch_record("inner")


def opened(world, name="inner", parent="outer"):
    return world.run(ops.batch_open(name, {"done": b"d"}, parent))


def record(world, name):
    fields = world.redis.hgetall(name)
    return {key.decode(): value.decode() for key, value in fields.items() if key != b"opened"}


@pytest.fixture
def outer(world):
    assert opened(world, "outer", "") is True
    return world


def test_an_inner_batch_is_counted_by_its_parent_once(outer):
    for _ in range(2):  # the reply of the first call may be lost
        assert opened(outer) is True
    assert record(outer, INNER) == {"state": "open", "parent": "outer", "done": "d"}
    assert record(outer, OUTER)["children"] == "1"
    assert sorted(outer.redis.zrange(BATCHES, 0, -1)) == [b"inner", b"outer"]


@pytest.mark.parametrize("state", ["closed", "abandoned"])
def test_no_inner_batch_is_opened_in_one_that_is_not_open(outer, state):
    outer.run(ops.batch_close("outer", state))
    assert opened(outer) is False
    assert outer.redis.exists(INNER) == 0
    assert "children" not in record(outer, OUTER)
    assert outer.redis.zrange(BATCHES, 0, -1) == [b"outer"]


def test_no_inner_batch_is_opened_in_one_that_has_ended(world):
    assert opened(world) is False
    assert world.redis.exists(OUTER, INNER, BATCHES) == 0


def test_a_repeated_call_is_answered_when_the_parent_was_closed_meanwhile(outer):
    opened(outer)
    outer.run(ops.batch_close("outer", "closed"))
    assert opened(outer) is True
    assert record(outer, OUTER)["children"] == "1"


@pytest.mark.parametrize("times", [1, 2])
def test_the_end_of_an_inner_batch_adds_its_counts_to_those_of_its_parent_once(outer, times):
    opened(outer)
    for _ in range(times):
        outer.run(ops.batch_end("inner", "outer", Counts(sent=6, dead=2, cancelled=1)))
    found = record(outer, OUTER)
    assert (found["children"], outer.redis.exists(INNER)) == ("0", 0)
    assert [found[f"children_{name}"] for name in ("handled", "dead", "cancelled")] == ["3", "2", "1"]
    assert outer.redis.zrange(BATCHES, 0, -1) == [b"outer"]


def test_the_counts_at_the_end_are_those_that_were_fixed_first(outer):
    assert [outer.run(ops.batch_ending("outer", counts)) for counts in (b"1 0 0", b"2 0 0")] == [b"1 0 0"] * 2


def test_a_slow_monitor_does_not_bring_a_batch_back_or_count_it_again(outer):
    """Another one has ended the batch meanwhile."""
    opened(outer)
    opened(outer, "other")
    for ended in (True, False):
        assert outer.run(ops.batch_ending("inner", b"1 0 0")) == (b"1 0 0" if ended else None)
        assert outer.run(ops.batch_sent("inner")) == (b"1" if ended else None)
        assert outer.run(ops.batch_end("inner", "outer", Counts(sent=1))) is ended
        assert outer.redis.exists(INNER) == 0
        found = record(outer, OUTER)
        assert (found["children"], found["children_handled"]) == ("1", "1")


def test_what_an_earlier_version_has_written_after_the_end_counts_for_nothing(outer):
    outer.redis.hset(INNER, "ending", "1 0 0")
    before = record(outer, OUTER)
    assert outer.run(ops.batch_end("inner", "outer", Counts(sent=1))) is False
    assert (record(outer, OUTER), outer.redis.exists(INNER)) == (before, 0)


def test_a_field_of_a_batch_that_is_not_open_stays_as_it_is(outer):
    assert outer.run(ops.batch_enlist("outer", "orders")) is True
    outer.run(ops.batch_close("outer", "closed"))
    before = record(outer, OUTER)
    assert outer.run(ops.batch_enlist("outer", "mails")) is False
    assert outer.run(ops.batch_close("outer", "abandoned")) is False
    assert record(outer, OUTER) == before


def complete(world):
    return [batch for batch, is_complete in world.run(ops.open_batches(10, 0)).items() if is_complete]


@pytest.mark.parametrize("state", ["closed", "abandoned"])
def test_a_batch_is_complete_when_it_is_closed(outer, state):
    outer.run(ops.batch_enlist("outer", "orders"))
    assert complete(outer) == []
    opened_at = outer.redis.zscore(BATCHES, "outer")
    for _ in range(2):
        outer.run(ops.batch_close("outer", state))
    assert complete(outer) == ["outer"]
    assert outer.redis.zscore(BATCHES, "outer") == opened_at + 0.5


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_batch_is_complete_when_it_is_closed_and_the_batches_in_it_have_ended(outer, closed_first):
    opened(outer)
    opened(outer, "other")
    steps = [ops.batch_end("inner", "outer", Counts()), ops.batch_end("other", "outer", Counts())]
    steps.insert(0 if closed_first else 2, ops.batch_close("outer", "closed"))
    for step in steps:
        assert complete(outer) == []
        outer.run(step)
    assert complete(outer) == ["outer"]


def test_a_batch_that_has_ended_does_not_come_back(outer):
    opened(outer)
    outer.run(ops.batch_close("outer", "closed"))
    outer.redis.zrem(BATCHES, "outer")
    outer.run(ops.batch_end("inner", "outer", Counts()))
    assert outer.redis.exists(BATCHES) == 0


def test_the_counts_of_a_batch_are_forgotten_once(world):
    for batch in ("one", "other"):
        world.redis.hset(KEYS.followed, f" {batch}", "1 1 0 0")
    assert [world.run(ops.batch_forget(KEYS, "one")) for _ in range(2)] == [True, False]
    assert world.redis.hkeys(KEYS.followed) == [b" other"]
