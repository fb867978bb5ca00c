"""bind and publish: which queues get a message, and what a full one counts."""

import pytest

from reliq import ops
from reliq.features.topics import ops as own
from reliq.model.keys import TOPICS, QueueKeys
from reliq.model.partitions import bitmap, bucket_of_key
from tests.support.state import KEYS, element, keyed

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
        assert world.run(own.set_alternate(name)) == 1
    assert world.redis.hget(TOPICS, "alternate") == b"second"
    assert world.run(own.unset_alternate()) == 1
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


def noted(world):
    """The queues that know the producer."""
    return [keys.queue for keys in (KEYS, OTHER) if world.redis.hexists(keys.producers, "p")]


def test_each_queue_that_gets_the_message_knows_the_producer(world):
    """Else a deletion of one would not see that somebody sends to it."""
    assert world.run(own.publish([KEYS, OTHER], "a", element("a"), 0.0, "p", 1)).status == "ok"
    assert noted(world) == ["q", "other"]


def test_a_publish_is_recognized_by_its_first_queue_when_that_has_dropped_the_message(world):
    world.redis.hset(KEYS.config, mapping={"max_length": 1, "overflow": "drop"})
    world.redis.lpush(KEYS.messages, element("a"))
    publish = own.publish([KEYS, OTHER], "b", element("b"), 0.0, "p", 1)
    assert [world.run(publish).status for _ in range(2)] == ["ok", "repeated"]
    assert noted(world) == ["q", "other"]
    assert world.redis.llen(OTHER.messages) == 1


def full_partition(world, keys, *, home):
    """Make a queue a full partition that is the home of the key, or not."""
    buckets = [bucket_of_key("k")] if home else []
    world.run(ops.take_in(keys, ops.OwnedBuckets(bitmap(buckets), 1), retired=False))
    world.redis.hset(keys.config, "max_length", 1)
    world.redis.lpush(keys.messages, element("a"))


@pytest.mark.parametrize(("home", "status"), [(False, "moved"), (True, "full")])
def test_a_full_partition_refuses_only_what_belongs_there(world, home, status):
    full_partition(world, KEYS, home=home)
    answer = world.run(own.publish([KEYS], "b", keyed("b", "k"), 0.0, "p", 1, {0: (1, False)}))
    assert answer.status == status


def test_a_full_queue_refuses_although_another_one_is_not_the_home_of_the_key(world):
    full_partition(world, KEYS, home=False)
    world.redis.hset(OTHER.config, "max_length", 1)
    world.redis.lpush(OTHER.messages, element("a"))
    answer = world.run(own.publish([KEYS, OTHER], "b", keyed("b", "k"), 0.0, "p", 1, {0: (1, False)}))
    assert (answer.status, answer.refuser) == ("full", 1)


def test_an_alternate_that_was_set_meanwhile_stays(world):
    world.run(own.set_alternate("new"))
    assert world.run(own.unset_alternate_if("old")) == 0
    assert world.redis.hget(TOPICS, "alternate") == b"new"
    assert world.run(own.unset_alternate_if("new")) == 1
    assert bindings(world) == (set(), True)
