"""bind and publish: which queues get a message, and what a full one counts."""

import pytest

from reliq.features.topics import ops as own
from reliq.model.keys import TOPICS, QueueKeys
from tests.support.state import KEYS, element

OTHER = QueueKeys("other")


def bindings(world):
    found = {name.decode() for name in world.redis.hkeys(TOPICS)}
    return found - {"version"}, "version" in found


def test_a_binding_is_added_and_removed_once_and_each_change_is_a_new_version(world):
    assert [world.run(own.bind("bind", ["q a.*", "q b"])) for _ in range(2)] == [2, 0]
    assert bindings(world) == ({"q a.*", "q b"}, True)
    world.redis.hdel(TOPICS, "version")
    assert world.run(own.bind("bind", ["q b"])) == 0
    assert [world.run(own.bind("unbind", ["q b", "other b"])) for _ in range(2)] == [1, 0]
    assert bindings(world) == ({"q a.*"}, True)


def test_the_alternate_queue_is_one(world):
    for name in ("first", "second"):
        assert world.run(own.alternate(name)) == 1
    assert world.redis.hget(TOPICS, "alternate") == b"second"
    assert world.run(own.no_alternate()) == 1
    assert bindings(world) == (set(), True)


@pytest.mark.parametrize("full", [[KEYS], [KEYS, OTHER]])
def test_a_full_queue_that_drops_counts_each_rejection_and_the_others_get_the_message(world, full):
    for keys in full:
        world.redis.hset(keys.config, mapping={"max_length": 1, "overflow": "drop"})
        world.redis.lpush(keys.messages, element("a"))
    answer = world.run(own.publish([KEYS, OTHER], "b", element("b"), 0.0, "p", 1))
    assert answer.status == "ok"
    for keys in (KEYS, OTHER):
        rejected, there = (b"1", 1) if keys in full else (None, 1)
        assert world.redis.hget(keys.counters, "rejected") == rejected
        assert world.redis.llen(keys.messages) == there
        assert world.redis.hget(keys.counters, "enqueued") == (None if keys in full else b"1")


def test_a_partition_that_its_server_does_not_know_gets_no_published_message(world):
    answer = world.run(own.publish([QueueKeys("q@partition.1")], "c", element("c"), 0.0, "p", 2))
    assert (answer.status, answer.moved) == ("moved", [0])
