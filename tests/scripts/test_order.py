"""Keys: messages with one key are ready one at a time, whatever becomes of the one that is."""

from itertools import product

import pytest

from reliq import ops
from reliq.model.element import group_of
from reliq.model.message import wrapped
from reliq.ops import Entry, Move, Revival
from reliq_monitor.reclaim import take_back
from tests.support.state import HOUR, KEYS, element, keyed
from tests.support.workers import eventually

K, L = group_of("k"), group_of("l")


def send(world, *names, key="k", delay=0.0):
    entries = [Entry(name, keyed(name, key), delay, None, 0.0) for name in names]
    world.run(ops.enqueue(KEYS, [], entries))


@pytest.fixture
def line(world):
    """a is being handled by w; b and c wait for it; x has another key."""
    send(world, "a", "b", "c")
    world.given(leases={"w": HOUR})
    world.run(ops.claim(KEYS, "w", 15.0, 10))
    send(world, "x", key="l")
    assert places(world) == {"messages": "x", "processing:w": "a", "waiting": "b c", "active": {K: "a", L: "x"}}
    return world


def places(world):
    return {
        name: value
        for name, value in world.state().items()
        if name not in {"counters", "consumers", "lease:w", "index"}
    }


def settled(world, name, destination, counter, delay=0.0):
    move = Move(keyed(name, "k"), destination, counter, name, keyed(name + "2", "k"), delay)
    world.run(ops.settle(KEYS, "w", 15.0, [], [move]))


def test_only_the_first_of_a_key_is_ready(world):
    send(world, "a", "b", "c")
    assert world.state() == {
        "messages": "a", "waiting": "b c", "active": {K: "a"}, "counters": {"enqueued": 3, "ordered": 2},
    }  # fmt: skip


def test_an_ack_makes_the_next_one_ready(line):
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")]))
    assert places(line) == {"messages": "b x", "waiting": "c", "active": {K: "b", L: "x"}}


def test_an_ack_may_claim_the_next_one_in_the_same_step(line):
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")], limit=10))
    assert places(line) == {"processing:w": "b x", "waiting": "c", "active": {K: "b", L: "x"}}


def test_the_last_ack_frees_the_key(line):
    for name in "abc":
        line.run(ops.settle(KEYS, "w", 15.0, [keyed(name, "k")], limit=10))
    assert places(line) == {"processing:w": "x", "active": {L: "x"}}


def test_an_ack_that_removes_nothing_frees_nothing(line):
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("b", "k")]))
    assert places(line) == {"messages": "x", "processing:w": "a", "waiting": "b c", "active": {K: "a", L: "x"}}


@pytest.mark.parametrize("destination", ["dead", "gone"])
def test_what_leaves_otherwise_makes_the_next_one_ready_too(line, destination):
    settled(line, "a", destination, "rejected")
    found = places(line)
    assert (found["messages"], found["waiting"], found["active"]) == ("b x", "c", {K: "b", L: "x"})


@pytest.mark.parametrize(
    ("destination", "delay", "place", "names"),
    [("delayed", 60.0, "delayed", "a2"), ("head", 0.0, "messages", "a2 x"), ("tail", 0.0, "messages", "x a2")],
)
def test_a_message_that_comes_back_keeps_its_key(line, destination, delay, place, names):
    settled(line, "a", destination, "retried", delay)
    found = places(line)
    assert (found[place], found["waiting"], found["active"]) == (names, "b c", {K: "a", L: "x"})


def test_a_retry_that_is_due_goes_before_those_that_wait(line):
    settled(line, "a", "delayed", "retried", 60.0)
    make_due(line)
    line.run(ops.promote(KEYS, 100))
    assert places(line) == {"messages": "a2 x", "waiting": "b c", "active": {K: "a", L: "x"}}


def test_a_delayed_message_takes_its_place_when_it_is_due(line):
    send(line, "d", delay=60.0)
    assert places(line)["delayed"] == "d"
    make_due(line)
    line.run(ops.promote(KEYS, 100))
    assert places(line)["waiting"] == "b c d"


def make_due(world):
    for one in world.redis.zrange(KEYS.delayed, 0, -1):
        world.redis.zadd(KEYS.delayed, {one: world.now - 1000})


def test_a_cancelled_message_frees_its_key(line):
    settled(line, "a", "delayed", "retried", 60.0)
    assert line.run(ops.cancel(KEYS, "a"))
    assert places(line) == {"messages": "b x", "waiting": "c", "active": {K: "b", L: "x"}}


def test_a_cancelled_message_that_holds_no_key_frees_none(line):
    send(line, "d", delay=60.0)
    assert line.run(ops.cancel(KEYS, "d"))
    assert places(line) == {"messages": "x", "processing:w": "a", "waiting": "b c", "active": {K: "a", L: "x"}}


def test_a_redriven_letter_goes_behind_those_that_wait(line):
    settled(line, "a", "dead", "dead:rejected")
    line.run(ops.redrive(KEYS, [Revival(keyed("a2", "k"), "a", keyed("a3", "k"))]))
    assert places(line) == {"messages": "b x", "waiting": "c a3", "active": {K: "b", L: "x"}}


def test_purge_takes_those_that_wait_and_leaves_the_key_to_who_has_it(line):
    assert line.run(ops.purge(KEYS, 1000)).removed == 3
    assert places(line) == {"processing:w": "a", "active": {K: "a"}}
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")]))
    assert places(line) == {}


def test_purge_in_small_steps_ends_with_nothing(world):
    send(world, "a", "b", "c")
    send(world, "x", "y", key="l")
    while world.run(ops.purge(KEYS, 1)).more:
        pass
    assert world.state() == {"counters": {"enqueued": 5, "ordered": 3, "purged": 5}}


def test_a_full_redis_drains_in_order(line):
    line.fill()
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")], limit=10))
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("b", "k"), keyed("x", "l")], limit=10))
    assert places(line) == {"processing:w": "c", "active": {K: "c"}}


def test_reclaim_at_full_memory_frees_the_key_of_what_dies(line):
    line.redis.set(KEYS.lease("w"), 1)
    line.fill()
    death = ops.Return(keyed("a", "k"), ops.Fate.EXHAUSTED, "a", keyed("a2", "k"))
    assert line.run(ops.reclaim_when_full(KEYS, "w", "1", [death])) == 1
    assert places(line) == {"messages": "b x", "dead": "a2", "waiting": "c", "active": {K: "b", L: "x"}}


def test_a_pushed_element_with_a_key_is_no_part_of_the_order(line):
    """A foreign LPUSH: it is handled like any other, and frees nothing."""
    line.redis.lpush(KEYS.messages, keyed("z", "k"))
    line.run(ops.claim(KEYS, "w", 15.0, 10))
    line.run(ops.settle(KEYS, "w", 15.0, [keyed("z", "k")]))
    assert places(line) == {"processing:w": "x a", "waiting": "b c", "active": {K: "a", L: "x"}}


def test_one_id_sent_twice_with_one_key_runs_one_after_the_other(line):
    send(line, "a")
    assert places(line) == {"messages": "x", "processing:w": "a", "waiting": "b c a", "active": {K: "a", L: "x"}}
    for name in "abc":
        line.run(ops.settle(KEYS, "w", 15.0, [keyed(name, "k")], limit=10))
    assert places(line) == {"processing:w": "a x", "active": {K: "a", L: "x"}}


def test_a_letter_waits_behind_a_message_of_its_id(line):
    line.given(dead={"q": 0})
    line.redis.zadd(KEYS.dead, {keyed("a4", "k"): 1})
    line.run(ops.redrive(KEYS, [Revival(keyed("a4", "k"), "a", keyed("a5", "k"))]))
    assert (places(line)["waiting"], places(line)["messages"]) == ("b c a5", "x")


def test_a_purge_of_what_waits_does_not_free_the_key_for_a_message_of_its_id(line):
    line.run(ops.purge(KEYS, 2))
    send(line, "a")
    line.run(ops.purge(KEYS, 1))
    assert places(line) == {"messages": "x", "processing:w": "a", "active": {K: "a", L: "x"}}


FUTURE = b"\x9a\x03" + keyed("f", "k")[2:]  #: of a later version: it does not decode, and scripts see its key


def test_a_redriven_letter_that_does_not_decode_keeps_its_key_no_longer_than_it_lives(world):
    _, letter = wrapped(FUTURE)
    world.redis.zadd(KEYS.dead, {letter: 1})
    world.given(leases={"w": HOUR})
    world.run(ops.redrive(KEYS, [Revival(letter, "wrapper", FUTURE)]))
    world.run(ops.claim(KEYS, "w", 15.0, 1))
    world.run(ops.settle(KEYS, "w", 15.0, [FUTURE]))
    send(world, "a")
    assert places(world) == {"messages": "a", "active": {K: "a"}}


def test_a_death_by_decode_found_by_the_monitor_frees_the_key(line):
    line.redis.delete(KEYS.processing("w"), KEYS.waiting)
    line.redis.lpush(KEYS.processing("w"), FUTURE)
    line.redis.hset(KEYS.active, K, "f")
    line.redis.set(KEYS.lease("w"), 1)
    line.store.run(take_back(KEYS, "w"))
    assert line.state()["active"] == {L: "x"}


def test_the_waiting_are_counted_as_ready_and_by_themselves(line):
    found = line.run(ops.stats(KEYS, ["w"]))
    assert (found.ready, found.waiting, found.processing) == (3, 2, 1)


def test_the_waiting_count_against_the_length(line):
    line.redis.hset(KEYS.config, "max_length", 3)
    assert line.run(ops.enqueue(KEYS, [b"x"])).status == "full"


def test_a_death_found_by_the_monitor_frees_the_key(line):
    """a has cost four workers their lives before this one."""
    line.redis.delete(KEYS.processing("w"))
    line.redis.lpush(KEYS.processing("w"), keyed("a", "k", deliveries=4))
    line.redis.set(KEYS.lease("w"), 1)
    line.store.run(take_back(KEYS, "w"))
    found = line.state()
    assert found["dead"].startswith("a")
    assert (found["messages"], found["waiting"], found["active"]) == ("b x", "c", {K: "b", L: "x"})


def test_a_reclaimed_message_keeps_its_key(line):
    line.redis.set(KEYS.lease("w"), 1)
    line.store.run(take_back(KEYS, "w"))
    found = line.state()
    assert found["messages"].startswith("a")
    assert (found["waiting"], found["active"]) == ("b c", {K: "a", L: "x"})


@pytest.mark.parametrize("key", ["k", ""])
def test_messages_with_one_delay_become_ready_in_the_order_in_which_they_were_sent(world, key):
    names = ["".join(pair) for pair in product("onmlkjihgfedcba", "tsrqponmlkjihgfedcba")]
    for first in range(0, 300, 60):
        entries = [
            Entry(name, keyed(name, key) if key else element(name), 0.001, None, 0.0)
            for name in names[first : first + 60]
        ]
        world.run(ops.enqueue(KEYS, [], entries))
    eventually(lambda: world.run(ops.promote(KEYS, 1000))[0] == 0 and not world.redis.zcard(KEYS.delayed))
    state = world.state()
    taken = state["messages"].split()[::-1] + state.get("waiting", "").split()
    assert taken == names
