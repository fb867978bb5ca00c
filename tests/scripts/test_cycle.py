"""cycle_add, cycle_remove, and what settle and redrive do with members."""

from reliq import ops
from reliq.message import group_of
from reliq.ops import Member, Move, Revival
from tests.state import HOUR, KEYS, keyed

A, B = group_of("ann"), group_of("bob")


def member(name, who):
    return Member(who, group_of(who), name, keyed(name, who, cycle=True))


def add(world, *members):
    return world.run(ops.cycle_add(KEYS, members))


def places(world):
    ignored = {"counters", "consumers", "lease:w", "index", "config"}
    return {name: value for name, value in world.state().items() if name not in ignored}


def visited(world, limit=1):
    world.given(leases={"w": HOUR})
    world.run(ops.claim(KEYS, "w", 15.0, limit))


def again(world, name, who, delay=0.0):
    move = Move(
        keyed(name, who, cycle=True), "rest" if delay else "round", "requeued", name,
        keyed(name + "2", who, cycle=True), delay,
    )  # fmt: skip
    world.run(ops.settle(KEYS, "w", 15.0, [], [move]))


def test_members_enter_once(world):
    assert add(world, member("a", "ann"), member("b", "bob")).rest == [1, 1]
    assert add(world, member("c", "ann")).rest == [0]
    assert world.state() == {
        "messages": "b a", "active": {A: "a", B: "b"}, "cycle": {A: "ann", B: "bob"},
        "config": {"cyclic": "1"}, "counters": {"enqueued": 2},
    }  # fmt: skip


def test_a_visited_member_goes_to_the_head(world):
    add(world, member("a", "ann"), member("b", "bob"))
    visited(world)
    again(world, "a", "ann")
    assert places(world) == {"messages": "a2 b", "active": {A: "a", B: "b"}, "cycle": {A: "ann", B: "bob"}}


def test_a_member_that_rests_is_delayed(world):
    add(world, member("a", "ann"))
    visited(world)
    again(world, "a", "ann", delay=60.0)
    assert places(world) == {"delayed": "a2", "active": {A: "a"}, "cycle": {A: "ann"}}


def test_an_acked_member_leaves_the_cycle(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "ann", cycle=True)]))
    assert places(world) == {}


def test_a_member_removed_while_it_rests_is_gone_at_once(world):
    add(world, member("a", "ann"))
    visited(world)
    again(world, "a", "ann", delay=60.0)
    assert world.run(ops.cycle_remove(KEYS, [A, B])) == [1, 0]
    assert places(world) == {}
    assert world.state()["counters"]["cancelled"] == 1


def test_a_member_removed_while_it_is_visited_does_not_come_back(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.cycle_remove(KEYS, [A]))
    again(world, "a", "ann")
    assert places(world) == {}
    assert world.state()["counters"]["cancelled"] == 1


def test_a_member_added_anew_during_a_visit_is_visited_again_when_that_ends(world):
    add(world, member("a", "ann"))
    visited(world)
    world.run(ops.cycle_remove(KEYS, [A]))
    assert add(world, member("b", "ann")).rest == [1]
    assert places(world) == {"processing:w": "a", "waiting": "b", "active": {A: "a"}, "cycle": {A: "ann"}}
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "ann", cycle=True)]))
    assert places(world) == {"messages": "b", "active": {A: "b"}, "cycle": {A: "ann"}}


def test_a_member_added_anew_goes_round_once(world):
    add(world, member("a", "ann"))
    visited(world)
    for name in ("b", "c"):
        world.run(ops.cycle_remove(KEYS, [A]))
        add(world, member(name, "ann"))
    again(world, "a", "ann")
    assert places(world) == {"messages": "a2", "active": {A: "a"}, "cycle": {A: "ann"}}


def test_a_member_that_dies_leaves_and_enters_again_when_it_is_redriven(world):
    add(world, member("a", "ann"))
    visited(world)
    dead = keyed("a2", "ann", cycle=True)
    world.run(ops.settle(KEYS, "w", 15.0, [], [Move(keyed("a", "ann", cycle=True), "dead", "dead:x", "a", dead)]))
    assert places(world) == {"dead": "a2"}
    assert world.run(ops.redrive(KEYS, [Revival(dead, "a", keyed("a3", "ann", cycle=True), "ann")])) == [1]
    assert places(world) == {"messages": "a3", "active": {A: "a"}, "cycle": {A: "ann"}}


def test_a_dead_member_that_was_added_anew_is_not_there_twice(world):
    dead = keyed("a2", "ann", cycle=True)
    world.redis.zadd(KEYS.dead, {dead: world.now})
    add(world, member("b", "ann"))
    assert world.run(ops.redrive(KEYS, [Revival(dead, "a", keyed("a3", "ann", cycle=True), "ann")])) == [0]
    assert places(world) == {"messages": "b", "active": {A: "b"}, "cycle": {A: "ann"}}
    assert world.state()["counters"] == {"enqueued": 1, "purged_dead": 1}


def test_purge_empties_the_cycle(world):
    add(world, member("a", "ann"), member("b", "bob"))
    assert world.run(ops.purge(KEYS, 1000)) == 2
    assert places(world) == {}


def test_no_consumer_takes_so_many_that_the_others_go_round_twice(world):
    add(world, *(member(f"m-{chr(97 + place)}", f"m{place}") for place in range(24)))
    world.given(leases={"w": HOUR, "v": HOUR})
    assert len(world.run(ops.claim(KEYS, "w", 15.0, 100)).elements) == 3  # 24 members, 2 consumers, a quarter each
    assert len(world.run(ops.settle(KEYS, "v", 15.0, [], limit=100)).elements) == 3


def test_a_full_queue_takes_no_member(world):
    world.given(config={"max_length": 1})
    assert add(world, member("a", "ann"), member("b", "bob")).status == "full"
    assert places(world) == {}
