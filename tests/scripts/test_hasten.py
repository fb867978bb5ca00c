"""hasten: delayed messages are due now, whatever their time was."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from tests.support.state import KEYS


def test_the_named_messages_are_due_and_the_others_wait(world):
    world.given(delayed={"a": 60_000, "b": 70_000, "c": 80_000})
    assert world.run(ops.hasten(KEYS, ["c", "a", "gone"])) == 2
    assert world.run(ops.promote(KEYS, 100))[0] == 2
    state = world.state()
    assert set(state["messages"].split()) == {"a", "c"}
    assert (state["delayed"], state["index"], state["counters"]) == ("b", {"b"}, {"promoted": 2})


def test_the_index_has_the_new_time_of_a_hastened_message(world):
    world.given(delayed={"a": 60_000})
    for _ in range(2):
        assert world.run(ops.hasten(KEYS, ["a"])) == 1
    assert world.redis.zscore(KEYS.delayed, world.redis.zrange(KEYS.delayed, 0, 0)[0]) == float(
        world.redis.hget(KEYS.index, "a")
    )
    assert world.run(ops.cancel(KEYS, "a")) == 1


def test_nothing_delayed_changes_nothing(world):
    world.given(messages="a", dead={"b": -1})
    before = world.state()
    assert world.run(ops.hasten(KEYS, ["a", "b"])) == 0
    assert world.state() == before


def test_a_delayed_key_of_another_type_is_refused(world):
    world.redis.set(KEYS.delayed, "somebody else's")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.hasten(KEYS, ["a"]))
