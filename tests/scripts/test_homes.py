"""Partitions: which keys have their home here, and what waits for the former home of its key."""

import pytest

from reliq import ops
from reliq.model.element import Extra, group_of, limit_group_of
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bitmap, bucket_of_key
from reliq.ops import Entry
from tests.support.state import HOUR, KEYS, element, elements, keyed

BUCKET = bucket_of_key("k")


def become(world, *, home: bool, arriving: bool = False, version: int = 1) -> None:
    """Make the queue a partition that is the home of the key, or not."""
    buckets = [BUCKET] if home else []
    owned = ops.OwnedBuckets(bitmap(buckets), version, bitmap([BUCKET]) if arriving else "")
    world.run(ops.take_in(KEYS, owned, retired=False))


def promoted(world, *names: str) -> None:
    world.given(delayed={}, leases={"w": HOUR})
    for name in names:
        world.redis.zadd(KEYS.delayed, {keyed(name, "k"): world.now - 1})
    world.run(ops.promote(KEYS, 10))


def places(world) -> dict[str, str]:
    state = world.state()
    return {name: state[name] for name in ("messages", "waiting", "processing:w") if name in state}


def test_a_monitor_that_knows_an_earlier_layout_lets_no_line_begin(world):
    become(world, home=True, arriving=True, version=4)
    promoted(world, "a")
    assert world.run(ops.release_lines(KEYS, [group_of("k")], 3)) == 0
    assert places(world) == {"waiting": "a"}
    assert world.run(ops.release_lines(KEYS, [group_of("k")], 4)) == 1


@pytest.mark.parametrize("arriving", [True, False])
def test_a_delayed_message_waits_in_line_while_the_former_home_may_have_others_of_its_key(world, arriving):
    become(world, home=True, arriving=arriving)
    promoted(world, "a")
    assert places(world) == ({"waiting": "a"} if arriving else {"messages": "a"})
    assert world.run(ops.release_lines(KEYS, [group_of("k")], 2)) == arriving
    assert places(world) == {"messages": "a"}


def test_a_message_of_a_producer_that_has_asked_the_former_home_is_ready(world):
    become(world, home=True, arriving=True)
    answer = world.run(ops.enqueue(KEYS, [], [Entry("a", keyed("a", "k"), 0.0, None, 0.0)], version=1))
    assert answer.status == "ok"
    assert places(world) == {"messages": "a"}


def test_a_message_of_a_producer_that_knows_another_layout_waits_in_line(world):
    become(world, home=True, arriving=True)  # again, after a restart of its server from an older state
    answer = world.run(ops.enqueue(KEYS, [], [Entry("a", keyed("a", "k"), 0.0, None, 0.0)], version=2))
    assert answer.status == "ok"
    assert places(world) == {"waiting": "a"}


def test_a_former_home_does_not_pass_its_key_on_to_a_message_that_is_to_be_taken_away(world):
    promoted(world, "a", "b")
    world.run(ops.claim(KEYS, "w", 15.0, 1))
    become(world, home=False)
    promoted(world, "c")
    assert places(world) == {"processing:w": "a", "waiting": "b c"}
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")], limit=1))
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("b", "k")], limit=1))
    assert places(world) == {"waiting": "c"}
    _, strays = world.run(ops.strays(KEYS, b"", 10))
    assert [one.goes_home for one in strays] == [True]


def test_a_message_that_was_to_be_taken_away_stays_where_its_key_has_come_home_again(world):
    """Only a monitor lets it: it may have come to an earlier home."""
    become(world, home=False)
    promoted(world, "a", "b")
    become(world, home=True, version=2)
    _, strays = world.run(ops.strays(KEYS, b"", 10))
    assert world.run(ops.release_lines(KEYS, [group_of("k")], 2)) == 0
    assert world.run(ops.stay(KEYS, strays, 1)) == 0  # by a layout of before
    assert places(world) == {"waiting": "a b"}
    assert world.run(ops.stay(KEYS, strays, 2)) == 2
    assert places(world) == {"messages": "a", "waiting": "b"}


def test_a_message_with_a_limit_key_leaves_no_holder_behind_where_its_key_has_come_home_again(world):
    become(world, home=False)
    limited = element("a", extra=Extra(limit_key="k", lane=True, group=limit_group_of("k")))
    world.redis.zadd(KEYS.delayed, {limited: world.now - 1})
    world.run(ops.promote(KEYS, 10))
    become(world, home=True, version=2)
    _, strays = world.run(ops.strays(KEYS, b"", 10))
    assert world.run(ops.stay(KEYS, strays, 2)) == 1
    world.given(leases={"w": HOUR})
    world.run(ops.claim(KEYS, "w", 15.0, 1))
    assert places(world) == {"processing:w": "a"}
    world.run(ops.settle(KEYS, "w", 15.0, [limited]))
    assert world.redis.hgetall(KEYS.active) == {}


def test_a_partition_that_knows_a_later_layout_keeps_it(world):
    become(world, home=True, version=3)
    become(world, home=False, version=2)
    promoted(world, "a")
    assert places(world) == {"messages": "a"}


def test_the_first_partition_compares_with_the_layout_of_the_queue_that_it_has(world):
    world.run(ops.set_policy(KEYS, ["partitions", '{"version":5}']))
    become(world, home=False, version=4)
    promoted(world, "a")
    assert places(world) == {"messages": "a"}


PARTITION = QueueKeys("q@partition.1")


def test_a_partition_that_its_server_does_not_know_takes_nothing(world):
    assert world.run(ops.push(PARTITION, elements("a"), "p", 1, world.now)) == 0
    entry = Entry("b", keyed("b", "k"), 0.0, None, 0.0)
    answer = world.run(ops.enqueue(PARTITION, elements("a"), [entry]))
    assert (answer.status, answer.moved) == ("moved", {-1, 0})
    world.run(ops.take_in(PARTITION, ops.OwnedBuckets(bitmap([BUCKET]), 1), retired=False))
    assert world.run(ops.push(PARTITION, elements("a"), "p", 3, world.now)) == 1
    assert world.run(ops.enqueue(PARTITION, (), [entry], version=1)).status == "ok"


def test_messages_that_are_in_the_home_of_their_key_leave_once_and_are_counted(world):
    become(world, home=True, arriving=True)
    promoted(world, "a", "b")
    members = world.redis.zrange(KEYS.waiting, 0, -1)
    strays = [ops.Stray(one) for one in members]
    assert [world.run(ops.send_home(KEYS, strays[:1])), world.run(ops.send_home(KEYS, strays))] == [1, 1]
    assert places(world) == {}
    assert world.state()["counters"]["sent_home"] == 2
