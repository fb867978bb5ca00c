"""cycle_add, cycle_remove, and what the other scripts do with members and their rounds."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliq import ops
from reliq.features.cycle import ops as own
from reliq.features.cycle.ops import Member
from reliq.model.element import group_of
from reliq.model.message import Message
from reliq.ops import Destination, Entry, Move, Revival
from tests.support.state import HOUR, KEYS, keyed

ANN, BOB = group_of("ann"), group_of("bob")
BOTH = {"ann": "a", "bob": "b"}  #: members, each with its message
NONE: dict[str, Any] = {}


def member(name, who):
    return Member(who, group_of(who), name, keyed(name, who, cycle=True))


def add(world, *members):
    return world.run(own.cycle_add(KEYS, members))


def places(world):
    ignored = {"counters", "consumers", "lease:w", "lease:v", "index", "config"}
    return {name: value for name, value in world.state().items() if name not in ignored}


def queue(held_by_w="", members=NONE, holders=None, rounds=NONE, **lists):
    """The keys of a queue. `members`: the message of each; `holders`: that which holds a key, the member's by default.

    `rounds`: the round of each member that is ready or visited now.
    """
    hashes = {
        "active": {group_of(who): name for who, name in (members if holders is None else holders).items()},
        "cycle": {group_of(who): f"{name} {who}" for who, name in members.items()},
        "rounds": {group_of(who): number for who, number in rounds.items()},
        "processing:w": held_by_w,
    }
    return lists | {name: value for name, value in hashes.items() if value}


def visited(world, consumer="w"):
    world.given(leases={consumer: HOUR})
    world.run(ops.claim(KEYS, consumer, 15.0, 1))


def again(world, name, who, delay=0.0, consumer="w"):
    move = Move(
        keyed(name, who, cycle=True), Destination.REST if delay else Destination.ROUND, "requeued",
        name.rstrip("0123456789"),
        keyed(name + "2", who, cycle=True), delay,
    )  # fmt: skip
    world.run(ops.settle(KEYS, consumer, 15.0, [], [move]))


def test_members_enter_once(world):
    assert add(world, member("a", "ann"), member("b", "bob")).rest == [1, 1]
    assert add(world, member("c", "ann")).rest == [0]
    assert world.state() == queue(messages="b a", members=BOTH, rounds={"ann": 1, "bob": 1}) | {
        "config": {"round": "1"},
        "counters": {"enqueued": 2},
    }


def test_an_entry_that_arrives_late_brings_no_removed_member_back(world):
    late = own.cycle_add(KEYS, [member("a", "ann"), member("b", "bob")], "producer", 7)
    assert world.run(late).rest == [1, 1]
    assert world.run(late).rest == [1, 1]
    world.run(own.cycle_remove(KEYS, [ANN]))
    before = world.state()
    assert world.run(late).rest == [0, 1]
    assert world.state() == before


def test_a_member_is_not_lost_where_an_earlier_version_let_the_round_be_removed(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    world.redis.hdel(KEYS.config, "round")
    again(world, "a", "ann")
    assert (places(world)["next_round"], world.state()["config"]) == ("a2", {"round": "1"})


def test_a_visited_member_waits_for_the_next_round(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    again(world, "a", "ann")
    assert places(world) == queue(messages="b", next_round="a2", members=BOTH, rounds={"ann": 2, "bob": 1})


def test_the_next_round_begins_when_everybody_is_back_from_this_one(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    visited(world, consumer="v")
    again(world, "b", "bob", consumer="v")
    visited(world, consumer="v")  # finds nothing
    assert places(world) == queue(held_by_w="a", next_round="b2", members=BOTH, rounds={"ann": 1, "bob": 2})
    again(world, "a", "ann")
    assert places(world) == queue(messages="a2 b2", members=BOTH, rounds={"ann": 2, "bob": 2})
    assert world.state()["config"] == {"round": "2"}


def test_who_holds_up_the_others_for_too_long_has_left_the_round(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    visited(world, consumer="v")
    again(world, "b", "bob", consumer="v")
    world.given(config={"round_held": world.now - 5_001})
    visited(world, consumer="v")
    assert (places(world)["processing:v"], places(world)["rounds"]) == ("b2", {BOB: 2})
    again(world, "a", "ann")
    assert (places(world)["messages"], places(world)["rounds"]) == ("a2", {ANN: 2, BOB: 2})


def test_who_rests_or_is_removed_or_dies_holds_up_nobody(world):
    leave = {
        "rests": lambda: again(world, "a", "ann", delay=60.0),
        "is removed": lambda: world.run(own.cycle_remove(KEYS, [ANN])),
        "is acked": lambda: world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "ann", cycle=True)])),
        "dies": lambda: world.run(ops.settle(KEYS, "w", 15.0, [], [
            Move(keyed("a", "ann", cycle=True), Destination.DEAD, "dead:x", "a", keyed("a2", "ann", cycle=True))
        ])),
    }  # fmt: skip
    for how in leave.values():
        world.redis.flushall()
        add(world, member("a", "ann"), member("b", "bob"))
        visited(world)
        visited(world, consumer="v")
        again(world, "b", "bob", consumer="v")
        how()
        assert (places(world)["messages"], places(world)["rounds"]) == ("b2", {BOB: 2})


def test_a_member_that_rests_is_delayed_and_in_no_round(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    again(world, "a", "ann", delay=60.0)
    assert places(world) == queue(delayed="a2", messages="b", members=BOTH, rounds={"bob": 1})
    world.redis.zadd(KEYS.delayed, {keyed("a2", "ann", cycle=True): 1})
    world.run(ops.promote(KEYS, 10))
    assert (places(world)["messages"], places(world)["rounds"]) == ("a2 b", {ANN: 1, BOB: 1})


def test_a_released_member_stays_in_its_round(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    released = Move(keyed("a", "ann", cycle=True), Destination.TAIL, "released", "a", keyed("a2", "ann", cycle=True))
    world.run(ops.settle(KEYS, "w", 15.0, [], [released]))
    assert (places(world)["messages"], places(world)["rounds"]) == ("b a2", {ANN: 1, BOB: 1})


def test_an_acked_member_leaves_the_cycle(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "ann", cycle=True)]))
    assert places(world) == {}


def test_a_member_removed_while_it_rests_is_gone_at_once(world):
    add(world, member("a", "ann"))
    visited(world)
    again(world, "a", "ann", delay=60.0)
    assert world.run(own.cycle_remove(KEYS, [ANN, BOB])) == [1, 0]
    assert places(world) == {}
    assert world.state()["counters"]["cancelled"] == 1


def test_a_member_removed_while_it_is_visited_does_not_come_back(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(own.cycle_remove(KEYS, [ANN]))
    again(world, "a", "ann")
    assert places(world) == {}
    assert world.state()["counters"]["cancelled"] == 1


def test_a_member_added_anew_during_a_visit_is_visited_again_when_that_ends(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(own.cycle_remove(KEYS, [ANN]))
    assert add(world, member("b", "ann")).rest == [1]
    assert places(world) == queue(held_by_w="a", waiting="b", members={"ann": "b"}, holders={"ann": "a"})
    again(world, "a", "ann")
    assert places(world) == queue(messages="b", members={"ann": "b"}, rounds={"ann": 1})
    assert world.state()["counters"]["cancelled"] == 1


def test_messages_with_the_key_of_a_member_take_turns_with_it(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.enqueue(KEYS, [], [Entry("b", keyed("b", "ann"), 0, None, 0.0)]))
    again(world, "a", "ann")
    assert places(world) == queue(messages="b", waiting="a2", members={"ann": "a"}, holders={"ann": "b"})
    visited(world)
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("b", "ann")]))
    assert places(world) == queue(messages="a2", members={"ann": "a"}, rounds={"ann": 1})


def test_messages_with_the_key_of_a_member_do_not_wait_while_it_rests(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.enqueue(KEYS, [], [Entry("b", keyed("b", "ann"), 0, None, 0.0)]))
    again(world, "a", "ann", delay=60.0)
    assert places(world) == queue(messages="b", delayed="a2", members={"ann": "a"}, holders={"ann": "b"})
    assert world.run(own.cycle_remove(KEYS, [ANN])) == [1]
    assert places(world) == queue(messages="b", holders={"ann": "b"})


def test_a_member_may_enter_while_messages_with_its_key_wait(world):
    for name in ("a", "b"):
        world.run(ops.enqueue(KEYS, [], [Entry(name, keyed(name, "ann"), 0, None, 0.0)]))
    assert add(world, member("c", "ann")).rest == [1]
    assert places(world) == queue(messages="a", waiting="b c", members={"ann": "c"}, holders={"ann": "a"})


def test_a_member_that_dies_leaves_and_enters_again_when_it_is_redriven(world):
    add(world, member("a", "ann"))
    visited(world)
    dead = keyed("a2", "ann", cycle=True)
    world.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(keyed("a", "ann", cycle=True), Destination.DEAD, "dead:x", "a", dead)])
    )
    assert places(world) == {"dead": "a2"}
    assert world.run(ops.redrive(KEYS, [Revival(dead, "a", keyed("a3", "ann", cycle=True), "ann")])) == [1]
    assert places(world) == queue(messages="a3", members={"ann": "a"}, rounds={"ann": 1})


def test_a_dead_member_that_was_added_anew_is_not_there_twice(world):
    dead = keyed("a2", "ann", cycle=True)
    world.redis.zadd(KEYS.dead, {dead: world.now})
    add(world, member("b", "ann"))
    assert world.run(ops.redrive(KEYS, [Revival(dead, "a", keyed("a3", "ann", cycle=True), "ann")])) == [0]
    assert places(world) == queue(messages="b", members={"ann": "b"}, rounds={"ann": 1})
    assert world.state()["counters"] == {"enqueued": 1, "purged_dead": 1}


def test_purge_empties_the_cycle(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    again(world, "a", "ann")
    assert world.run(ops.purge(KEYS, 1000)).removed == 2
    assert places(world) == {}


def test_purge_takes_a_member_whose_message_waits_out_of_the_cycle(world):
    add(world, member("a", "ann"))
    world.run(own.cycle_remove(KEYS, [ANN]))
    add(world, member("b", "ann"))
    assert world.run(ops.purge(KEYS, 1)).removed == 1
    assert places(world) == queue(messages="a", holders={"ann": "a"})


def test_a_full_queue_takes_no_member(world):
    world.given(config={"max_length": 1})
    assert add(world, member("a", "ann"), member("b", "bob")).status == "full"
    assert places(world) == {}


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_bytes": 1}])
def test_a_member_that_is_in_the_cycle_needs_no_room(world, limit):
    add(world, member("a", "ann"), member("b", "bob"))
    world.given(config=limit)
    answer = add(world, member("c", "ann"), member("d", "bob"))
    assert (answer.status, answer.rest) == ("ok", [0, 0])
    assert add(world, member("c", "ann"), member("d", "cid")).status == "full"


def test_members_of_the_next_round_count_in_a_full_queue(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    again(world, "a", "ann")
    world.given(config={"max_length": 2})
    assert add(world, member("c", "cid")).status == "full"


def test_a_full_redis_holds_up_no_round(world):
    add(world, member("a", "ann"), member("b", "bob"))
    world.given(leases={"v": HOUR, "w": HOUR})
    visited(world)
    visited(world, consumer="v")
    world.fill()
    again(world, "b", "bob", consumer="v")
    world.run(ops.claim(KEYS, "v", 15.0, 1))
    again(world, "a", "ann")
    assert places(world)["messages"] == "a2 b2"


WHO = ("ann", "bob", "cid", "dan", "eve")


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from("vwx"), st.sampled_from(["take", "again", "release"])), min_size=60, max_size=150
    )
)
def test_nobody_gets_ahead_of_another_by_two_visits(world, steps):
    world.redis.flushall()
    world.given(leases={"v": HOUR, "w": HOUR, "x": HOUR})
    add(world, *(member(who[0], who) for who in WHO))
    visits = Counter(dict.fromkeys(WHO, 0))
    for consumer, step in steps:
        if step == "take":
            for one in world.run(ops.claim(KEYS, consumer, 15.0, 1)).elements:
                visits[Message.decode("q", one).key] += 1
        elif held := world.redis.lrange(KEYS.processing(consumer), -1, -1):
            message = Message.decode("q", held[0])
            visits[message.key] -= step == "release"
            move = Move(
                message.element,
                Destination.TAIL if step == "release" else Destination.ROUND,
                "requeued",
                message.id,
                message.again(),
            )
            world.run(ops.settle(KEYS, consumer, 15.0, [], [move]))
        assert max(visits.values()) - min(visits.values()) <= 1
