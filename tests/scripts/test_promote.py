"""promote: delayed messages become ready when they are due, and never twice."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from tests.support.state import KEYS, element


def test_due_messages_become_ready_those_due_first_going_first(world):
    world.given(messages="x", delayed={"b": -10, "a": -20, "c": 60_000})
    promoted, next_due = world.run(ops.promote(KEYS, 100))
    assert promoted == 2
    assert 59_000 < next_due <= 60_000
    assert world.state() == {"messages": "b a x", "delayed": "c", "index": {"c"}, "counters": {"promoted": 2}}


def test_promoting_twice_makes_a_message_ready_once(world):
    world.given(delayed={"a": -1})
    assert [world.run(ops.promote(KEYS, 100))[0] for _ in range(2)] == [1, 0]
    assert world.state() == {"messages": "a", "counters": {"promoted": 1}}


def test_a_bounded_number_a_call(world):
    world.given(delayed={"a": -3, "b": -2, "c": -1})
    assert world.run(ops.promote(KEYS, 2)) == (2, 0)
    assert world.state()["delayed"] == "c"


def test_nothing_delayed_says_so(world):
    assert world.run(ops.promote(KEYS, 100)) == (0, -1)
    assert world.state() == {}


def test_a_full_redis_still_promotes(world):
    world.given(delayed={"a": -1})
    world.fill()
    assert world.run(ops.promote(KEYS, 100))[0] == 1
    assert world.state()["messages"] == "a"


def test_a_ready_key_of_another_type_loses_nothing(world):
    world.given(delayed={"a": -1})
    world.redis.set(KEYS.messages, "somebody else's")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.promote(KEYS, 100))
    assert world.state()["delayed"] == "a"


def test_ids_of_every_length_are_found_in_the_index_again(world):
    for length in (1, 31, 32, 128):
        identity = "x" * length
        raw = element("a", id=identity)
        world.run(ops.enqueue(KEYS, [], [ops.Entry(identity, raw, 60.0, None, 0)]))
        assert world.run(ops.cancel(KEYS, identity)) is True
    assert world.state() == {"counters": {"enqueued": 4, "cancelled": 4}}
