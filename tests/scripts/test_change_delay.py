"""change_delay: delayed messages are due at the times that they are given."""

from reliq import ops
from reliq.features.receipts import ops as own
from tests.support.state import KEYS


def test_each_message_has_its_time_and_those_of_one_time_their_order(world):
    world.given(delayed={"c": 60_000, "a": 60_000, "b": 60_000, "later": 70_000})
    assert (
        world.run(own.change_delay(KEYS, [("later", 9_000), ("b", 9_000), ("gone", 1), ("a", 9_000), ("c", 8_000)]))
        == 4
    )
    scores = dict(world.redis.zrange(KEYS.delayed, 0, -1, withscores=True))
    assert [int(one) for one in sorted(scores.values())] == [8_000, 9_000, 9_000, 9_000]
    assert sorted(float(one) for one in world.redis.hgetall(KEYS.index).values()) == sorted(scores.values())
    assert world.run(ops.promote(KEYS, 100))[0] == 4
    assert world.state()["messages"].split() == ["later", "b", "a", "c"]


def test_what_is_not_delayed_stays_as_it_is(world):
    world.given(messages="a", dead={"b": -1})
    before = world.state()
    assert world.run(own.change_delay(KEYS, [("a", 1), ("b", 1)])) == 0
    assert world.state() == before
