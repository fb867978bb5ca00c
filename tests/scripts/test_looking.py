"""due and existing: which of many queues have anything to do."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.model.keys import QueueKeys
from tests.support.state import KEYS, element

OTHER, THIRD = QueueKeys("other"), QueueKeys("third")
HUNDRED = [QueueKeys(f"queue-{number}") for number in range(100)]


def delay(world, keys, ms, name="a"):
    world.redis.zadd(keys.delayed, {element(name): world.now + ms})


def test_existing_keys_are_told_by_their_place(world):
    world.redis.sadd(OTHER.consumers, "c")
    world.redis.hset(THIRD.counters, "enqueued", 1)
    assert world.run(ops.existing([KEYS.consumers, OTHER.consumers, THIRD.counters])) == [2, 3]
    assert world.run(ops.existing([KEYS.consumers, KEYS.jobs])) == []


def test_the_only_existing_key_of_a_hundred_is_found(world):
    world.redis.sadd(HUNDRED[99].consumers, "c")
    assert world.run(ops.existing([keys.consumers for keys in HUNDRED])) == [100]


@pytest.mark.parametrize("there", [range(100), range(0, 100, 2), range(40, 60), (0, 99), (49, 50)])
def test_some_of_a_hundred_keys(world, there):
    for number in there:
        world.redis.sadd(HUNDRED[number].consumers, "c")
    assert world.run(ops.existing([keys.consumers for keys in HUNDRED])) == [number + 1 for number in there]


def test_each_queue_is_told_when_its_next_message_is_due(world):
    delay(world, KEYS, 60_000)
    delay(world, OTHER, -1)
    delay(world, OTHER, 10, "b")
    assert world.run(ops.due([KEYS, OTHER, THIRD], 1.0)) == [-1, 0, -1]


def test_the_next_one_is_told_when_it_is_not_far_ahead(world):
    delay(world, KEYS, 30_000)
    delay(world, OTHER, 50_000)
    delay(world, THIRD, 90_000)
    other, soonest, third = world.run(ops.due([OTHER, KEYS, THIRD], 60.0))
    assert 25_000 < soonest <= 30_000 < other <= 50_000
    assert third == -1
    assert world.run(ops.due([KEYS, OTHER, THIRD], 1.0)) == [-1, -1, -1]


def test_nothing_is_delayed_in_any_of_a_hundred(world):
    assert world.run(ops.due(HUNDRED, 1.0)) == [-1] * 100


def test_due_and_existing_change_nothing(world):
    world.given(messages="x", delayed={"a": -1, "b": 60_000})
    before = world.state()
    world.run(ops.due([KEYS], 1.0))
    world.run(ops.existing([KEYS.messages, KEYS.delayed]))
    assert world.state() == before


def test_a_full_redis_is_looked_at(world):
    delay(world, KEYS, -1)
    world.fill()
    assert world.run(ops.due([KEYS], 1.0)) == [0]
    assert world.run(ops.existing([KEYS.delayed])) == [1]


def test_a_key_of_another_type_is_refused(world):
    world.redis.set(KEYS.delayed, "somebody else's")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.due([KEYS], 1.0))
