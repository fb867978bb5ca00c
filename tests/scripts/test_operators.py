"""cancel, purge, redrive, discard: what an operator does, each step guarded."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.ops import Entry, Revival
from tests.support.state import KEYS, element


def test_cancel_removes_a_delayed_message_once(world):
    world.given(delayed={"a": 60_000, "b": 60_000})
    assert [world.run(ops.cancel(KEYS, "a")) for _ in range(2)] == [True, False]
    assert world.state() == {"delayed": "b", "index": {"b"}, "counters": {"cancelled": 1}}


def test_a_repeated_cancel_has_the_answer_of_the_first_and_removes_no_other_message(world):
    world.given(delayed={"a": 60_000, "b": 60_000})
    call = KEYS.new_call()
    assert world.run(ops.cancel(KEYS, "a", call)) is True
    assert world.run(ops.enqueue(KEYS, [], [Entry("a", element("a2"), 60.0, None, 0)])).status == "ok"
    assert world.run(ops.cancel(KEYS, "a", call)) is True
    assert world.state()["counters"] == {"cancelled": 1, "enqueued": 1}
    assert world.run(ops.cancel(KEYS, "a", KEYS.new_call())) is True
    assert 0 < world.redis.pttl(call) <= 600_000


def test_cancel_of_a_promoted_message_is_false_and_it_stays(world):
    world.given(delayed={"a": -1})
    world.run(ops.promote(KEYS, 100))
    assert world.run(ops.cancel(KEYS, "a")) is False
    assert world.state()["messages"] == "a"


def test_cancel_does_not_touch_a_dead_letter(world):
    world.given(dead={"a": -1})
    before = world.state()
    assert world.run(ops.cancel(KEYS, "a")) is False
    assert world.state() == before


def test_purge_removes_ready_and_delayed_in_bounded_steps(world):
    world.given(messages="c b a", delayed={"d": 60_000, "e": 70_000}, dead={"f": -1})
    assert [world.run(ops.purge(KEYS, 2)).removed for _ in range(4)] == [2, 2, 1, 0]
    assert world.state() == {"dead": "f", "index": {" f"}, "counters": {"purged": 5}}


def test_redrive_puts_letters_back_each_only_once(world):
    world.given(messages="x", dead={"a": -20, "b": -10})
    revivals = [Revival(element(name), name, element(name + "2")) for name in ("a", "b")]
    assert world.run(ops.redrive(KEYS, revivals)) == [1, 1]
    assert world.run(ops.redrive(KEYS, revivals)) == [0, 0]
    assert world.state() == {"messages": "b2 a2 x", "counters": {"redriven": 2}}


def test_redrive_passes_when_redis_is_full(world):
    world.given(dead={"a": -20})
    world.fill()
    assert world.run(ops.redrive(KEYS, [Revival(element("a"), "a", element("a2"))])) == [1]


def test_redrive_into_a_key_of_another_type_loses_nothing(world):
    world.given(dead={"a": -20})
    world.redis.set(KEYS.messages, "somebody else's")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.redrive(KEYS, [Revival(element("a"), "a", element("a2"))]))
    assert world.state()["dead"] == "a"


def test_discard_removes_letters_and_counts_them(world):
    world.given(dead={"a": -20, "b": -10})
    letters = [(element("a"), "a", b"")]
    assert [world.run(ops.discard(KEYS, letters, "trimmed")) for _ in range(2)] == [1, 0]
    assert world.state() == {"dead": "b", "index": {" b"}, "counters": {"trimmed": 1}}


@pytest.fixture
def both(world):
    """A dead letter and a delayed message with one id."""
    world.given(delayed={"a2": 60_000}, dead={"a": -20}, leases={"w": 15_000})
    return world


def find(world, zset):
    found = world.run(ops.find(KEYS, zset, "a", 0, None))
    return found and found.element


def test_a_dead_letter_and_a_delayed_message_with_one_id_are_both_found(both):
    assert (find(both, KEYS.dead), find(both, KEYS.delayed)) == (element("a"), element("a2"))
    assert both.run(ops.hasten(KEYS, ["a"])) == 1
    assert find(both, KEYS.dead) == element("a")


REMOVALS = {
    "discard": ops.discard(KEYS, [(element("a"), "a", b"")], "purged_dead"),
    "redrive": ops.redrive(KEYS, [Revival(element("a"), "a", element("a3"))]),
    "cancel": ops.cancel(KEYS, "a"),
    "purge": ops.purge(KEYS, 10),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_the_removal_of_one_leaves_the_other_to_be_found(both, name):
    both.run(REMOVALS[name])
    removed, left = (KEYS.dead, KEYS.delayed) if name in ("discard", "redrive") else (KEYS.delayed, KEYS.dead)
    assert both.redis.exists(removed) == 0
    assert find(both, removed) is None
    assert find(both, left) in (element("a"), element("a2"))
    assert both.redis.hlen(KEYS.index) == 1


def test_of_two_dead_letters_with_one_id_the_later_one_is_found_when_the_other_is_gone(world):
    world.given(dead={"a": -20, "a2": -10})
    world.run(REMOVALS["discard"])
    assert find(world, KEYS.dead) == element("a2")


@pytest.mark.parametrize("is_delayed", [False, True])
@pytest.mark.parametrize("name", ["discard", "redrive"])
def test_a_dead_letter_with_an_entry_of_an_earlier_version_is_found_and_removed(world, name, is_delayed):
    world.redis.zadd(KEYS.dead, {element("a"): 7})
    world.redis.hset(KEYS.index, "a", 7)
    assert find(world, KEYS.dead) == element("a")
    if is_delayed:
        assert world.run(ops.enqueue(KEYS, [], [Entry("a", element("a2"), 60.0, None, 0)])).status == "ok"
    world.run(REMOVALS[name])
    assert world.redis.exists(KEYS.dead) == 0
    assert find(world, KEYS.delayed) == (element("a2") if is_delayed else None)
    assert world.redis.hlen(KEYS.index) == is_delayed


def test_a_repeated_redrive_has_the_answer_of_the_first(world):
    world.given(dead={"a": -1, "b": -1})
    revivals = [Revival(element(one), one, element(f"{one}2")) for one in "axb"]
    call = KEYS.new_call()
    assert [world.run(ops.redrive(KEYS, revivals, call)) for _ in range(2)] == [[1, 0, 1]] * 2
    assert world.state()["counters"] == {"redriven": 2}
    assert world.run(ops.redrive(KEYS, revivals, KEYS.new_call())) == [0, 0, 0]


def test_a_repeated_discard_has_the_answer_of_the_first(world):
    world.given(dead={"a": -1, "b": -1})
    letters = [(element(one), one, b"") for one in "axb"]
    call = KEYS.new_call()
    assert [world.run(ops.discard(KEYS, letters, "purged_dead", call)) for _ in range(2)] == [2, 2]
    assert world.state()["counters"] == {"purged_dead": 2}


def test_a_repeated_purge_has_the_answer_of_the_first_and_deletes_nothing_sent_since(world):
    world.given(messages="c b a", delayed={"d": 60_000})
    call = KEYS.new_call()
    assert world.run(ops.purge(KEYS, 10, call))[:2] == (4, True)
    assert world.run(ops.enqueue(KEYS, [element("e")])).status == "ok"
    assert world.run(ops.purge(KEYS, 10, call))[:2] == (4, True)
    assert world.state()["messages"] == "e"
