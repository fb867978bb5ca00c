"""Limit keys: slots, lines, buckets of keys; whole states before and after each step."""

import pytest

from reliq import ops
from reliq.features.charges import ops as charges
from reliq.model.element import Extra, group_of, limit_group_of
from reliq.model.message import Message
from reliq.model.partitions import bitmap
from reliq.ops import Destination, Entry, Move
from reliq_monitor.reclaim import take_back
from tests.support.state import HOUR, KEYS, element, keyed

T, U = limit_group_of("t"), limit_group_of("u")
ROOM = 2**40
FAIR = {"fair": 1, "limited": 1}
TWO = {"key_concurrency": 2, "limited": 1}


def laned(name, key="t", **extra):
    """An element with a limit key."""
    return element(name, extra=Extra(limit_key=key, lane=True, group=limit_group_of(key), **extra))


def send(world, *names, key="t", delay=0.0, **extra):
    world.run(ops.enqueue(KEYS, [], [Entry(name, laned(name, key, **extra), delay, None, 0.0) for name in names]))


def claim(world, n=10):
    return world.run(ops.claim_limited(KEYS, "w", 15.0, n, ROOM, reports=False))


def end_holds(world):
    for member in world.redis.zrange(KEYS.buckets, 0, -1):
        world.redis.zadd(KEYS.buckets, {member: 1})


def places(world):
    return {
        name: value
        for name, value in world.state().items()
        if name not in {"counters", "consumers", "lease:w", "index", "config", "buckets", "flow"}
    }


def slots(*held):
    """`active` with these slots: pairs of a group and an id."""
    fields = {f"{group} {identity}": "1" for group, identity in held}
    for group in {group for group, _ in held}:
        fields[f"#{group}"] = str(sum(one == group for one, _ in held))
    return fields


@pytest.fixture
def fair(world):
    world.given(leases={"w": HOUR}, config=FAIR)
    return world


@pytest.fixture
def two(world):
    world.given(leases={"w": HOUR}, config=TWO)
    return world


def test_a_limit_key_and_an_ordering_key_with_the_same_text_are_two_keys(two):
    for name, one in [("a", keyed("a", "t")), ("b", laned("b")), ("c", laned("c")), ("d", laned("d"))]:
        two.run(ops.enqueue(KEYS, [], [Entry(name, one, 0.0, None, 0.0)]))
    claim(two)
    assert places(two) == {
        "processing:w": "c b a", "waiting": "d", "active": {**slots((T, "b"), (T, "c")), group_of("t"): "a"},
    }  # fmt: skip
    two.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "t")], limit=0))
    assert places(two) == {"processing:w": "c b", "waiting": "d", "active": slots((T, "b"), (T, "c"))}


def test_without_limits_for_keys_a_limit_key_changes_nothing(world):
    send(world, "a", "b", "c")
    assert world.state() == {"messages": "c b a", "counters": {"enqueued": 3}}


def test_in_a_fair_queue_one_message_of_each_key_is_ready(fair):
    send(fair, "a", "b", "c")
    send(fair, "x", "y", key="u")
    assert places(fair) == {
        "messages": "x a",
        "waiting": "b c y" if T < U else "y b c",
        "active": slots((T, "a"), (U, "x")),
    }


def test_a_claim_takes_one_of_each_key_after_another(fair):
    send(fair, "a", "b", "c")
    send(fair, "x", "y", key="u")
    assert len(claim(fair, 4).elements) == 4
    assert places(fair) == {"messages": "c", "processing:w": "y b x a", "active": slots((T, "c"))}
    assert len(claim(fair).elements) == 1
    assert places(fair) == {"processing:w": "c y b x a"}


def test_a_key_with_a_weight_has_so_many_in_its_turn(fair):
    fair.redis.hset(KEYS.config, "weight_digests", f"{T}=2")
    send(fair, "a", "b", "c", "d")
    send(fair, "x", "y", key="u")
    claim(fair, 6)
    assert places(fair)["processing:w"] == "y d c x b a"


def test_what_is_done_in_a_fair_queue_touches_no_line(fair):
    send(fair, "a", "b")
    claim(fair, 1)
    fair.run(ops.settle(KEYS, "w", 15.0, [laned("a")]))
    assert places(fair) == {"messages": "b", "active": slots((T, "b"))}


def test_a_returned_message_of_a_fair_queue_goes_behind_its_line(fair):
    send(fair, "a", "b", "c")
    claim(fair, 1)
    move = Move(laned("a"), Destination.HEAD, "retried", "a", laned("a2"))
    fair.run(ops.settle(KEYS, "w", 15.0, [], [move]))
    assert places(fair) == {"messages": "b", "waiting": "c a2", "active": slots((T, "b"))}


def test_as_many_of_a_key_as_it_may_have_at_once(two):
    send(two, "a", "b", "c", "d")
    send(two, "x", key="u")
    assert places(two) == {"messages": "x b a", "waiting": "c d", "active": slots((T, "a"), (T, "b"), (U, "x"))}
    assert len(claim(two).elements) == 3
    assert places(two) == {"processing:w": "x b a", "waiting": "c d", "active": slots((T, "a"), (T, "b"), (U, "x"))}
    assert claim(two).elements == []


@pytest.mark.parametrize("way", ["ack", "dead", "retry", "done"])
def test_whatever_ends_a_run_frees_its_slot(two, way):
    send(two, "a", "b", "c")
    claim(two)
    destination = {"dead": Destination.DEAD, "retry": Destination.DELAYED, "done": Destination.DONE}.get(way)
    moves = (
        [Move(laned("a"), destination, "retried", "a", laned("a2"), 60.0, ops.Mark("m", 60.0))] if destination else []
    )
    two.run(ops.settle(KEYS, "w", 15.0, [] if moves else [laned("a")], moves))
    state = places(two)
    assert (state["messages"], state["processing:w"]) == ("c", "b")
    assert state["active"] == slots((T, "b"), (T, "c"))
    assert "waiting" not in state


def test_a_released_message_keeps_its_slot(two):
    send(two, "a", "b", "c")
    claim(two)
    two.run(ops.settle(KEYS, "w", 15.0, [], [Move(laned("a"), Destination.TAIL, "released", "a", laned("a2"))]))
    assert places(two) == {
        "messages": "a2", "processing:w": "b", "waiting": "c", "active": slots((T, "a"), (T, "b")),
    }  # fmt: skip
    assert len(claim(two).elements) == 1


def test_a_slot_of_a_killed_worker_comes_back_with_its_message(two):
    send(two, "a", "b", "c")
    claim(two)
    two.redis.delete(KEYS.lease("w"))
    two.store.run(take_back(KEYS, "w"))
    state = places(two)
    assert len(state["messages"].split()) == 2
    assert (state["waiting"], state["active"]) == ("c", slots((T, "a"), (T, "b")))


def test_a_retry_that_is_due_waits_for_a_slot(two):
    send(two, "a", "b", "c")
    claim(two)
    two.run(
        ops.settle(KEYS, "w", 15.0, [], [Move(laned("a"), Destination.DELAYED, "retried", "a", laned("a2"), 0.001)])
    )
    claim(two)
    two.redis.zadd(KEYS.delayed, {laned("a2"): 1})
    two.run(ops.promote(KEYS, 10))
    assert places(two) == {"processing:w": "c b", "waiting": "a2", "active": slots((T, "b"), (T, "c"))}


def test_what_was_ready_before_the_limit_gets_in_line(two):
    """Sent before the limit, by another language or by Spark: without a slot."""
    two.redis.lpush(KEYS.messages, laned("a"), laned("b"), laned("c"), laned("d"))
    assert len(claim(two).elements) == 2
    assert places(two) == {"processing:w": "b a", "waiting": "c d", "active": slots((T, "a"), (T, "b"))}


def test_a_line_ends_when_its_limit_is_removed(two):
    send(two, "a", "b", "c", "d", "e")
    claim(two)
    two.redis.hdel(KEYS.config, "key_concurrency")
    two.run(ops.settle(KEYS, "w", 15.0, [laned("a")]))
    assert places(two)["messages"] == "e d c"
    claim(two)
    two.run(ops.settle(KEYS, "w", 15.0, [laned(name) for name in "bcde"]))
    assert places(two) == {}


def test_a_key_over_its_rate_rests_and_others_go_on(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/h", "limited": 1})
    send(world, "a", "b", "c")
    send(world, "x", key="u")
    answer = claim(world)
    assert len(answer.elements) == 2
    assert places(world) == {
        "processing:w": "x a", "delayed": "b", "waiting": "c", "active": slots((T, "b")),
    }  # fmt: skip
    (due,) = (score for _, score in world.redis.zrange(KEYS.delayed, 0, -1, withscores=True))
    assert 3_599_000 < due - world.now < 3_602_000


def test_a_rested_message_is_given_out_at_its_time(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/h", "limited": 1})
    send(world, "a", "b", "c")
    claim(world)
    world.redis.zadd(KEYS.delayed, {laned("b"): 1})
    world.redis.zadd(KEYS.buckets, {T: 1})
    world.run(ops.promote(KEYS, 10))
    assert len(claim(world).elements) == 1
    assert places(world)["processing:w"] == "b a"


def test_a_released_message_of_a_fair_queue_is_taken_next(fair):
    """Its claim gave up the slot, which the next message of its key has by now."""
    send(fair, "a", "b", "c")
    assert claim(fair, 1).elements == [laned("a")]
    fair.run(ops.settle(KEYS, "w", 15.0, [], [Move(laned("a"), Destination.TAIL, "released", "a", laned("a"))], 0))
    assert places(fair)["active"] == slots((T, "a"), (T, "b"))
    assert [claim(fair, 1).elements for _ in range(3)] == [[laned("a")], [laned("b")], [laned("c")]]
    assert "active" not in places(fair)


def test_the_rate_of_a_key_holds_for_ordering_keys(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/h", "limited": 1})
    entries = [Entry(name, keyed(name, "k"), 0.0, None, 0.0) for name in ("a", "b")]
    world.run(ops.enqueue(KEYS, [], entries))
    claim(world)
    world.run(ops.settle(KEYS, "w", 15.0, [keyed("a", "k")]))
    assert claim(world).elements == []
    assert places(world) == {"delayed": "b", "active": {group_of("k"): "b"}}


def test_a_key_that_is_held_gives_nothing_and_others_do(world):
    world.given(leases={"w": HOUR})
    send(world, "a", "b")
    send(world, "x", key="u")
    world.run(ops.hold_key(KEYS, T, 30.0))
    assert world.run(ops.claim(KEYS, "w", 15.0, 10)).status == "limited"
    assert len(claim(world).elements) == 1
    assert places(world) == {"processing:w": "x", "delayed": "a b"}
    end_holds(world)
    assert claim(world).status == "ok"
    assert "config" not in world.state()


def test_what_was_not_started_or_not_needed_shortens_no_hold_of_its_key(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "60/m", "key_concurrency": 2, "limited": 1})
    send(world, "a", "b", "c")
    world.run(ops.hold_key(KEYS, T, 30.0))
    world.redis.zadd(KEYS.buckets, {T: world.now + 5_000})
    world.run(charges.charge(KEYS, Message.decode("q", laned("a")), 0))
    world.redis.lpush(KEYS.processing("w"), laned("x"))
    back = Move(laned("x"), Destination.TAIL, "released", "x", laned("x"), started=False)
    world.run(ops.settle(KEYS, "w", 15.0, [], [back], 0))
    assert world.redis.zscore(KEYS.buckets, T) < world.now + 4_000
    assert world.run(ops.hold_key(KEYS, T, 1.0)) > world.now + 29_000
    assert claim(world).elements == []


def test_tokens_come_back_to_a_key_that_lacks_more_than_its_bucket_holds(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/m", "limited": 1})
    send(world, "a")
    claim(world)
    world.redis.zadd(KEYS.buckets, {T: world.now + 600_000})  # charged for more than its cost
    back = Move(laned("a"), Destination.TAIL, "released", "a", laned("a"), started=False)
    world.run(ops.settle(KEYS, "w", 15.0, [], [back], 0))
    assert world.redis.zscore(KEYS.buckets, T) == pytest.approx(world.now + 540_000, abs=1_000)


def test_a_hold_concerns_messages_that_cost_nothing_too(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "60/m", "limited": 1})
    free = element("a", extra=Extra(limit_key="t", lane=True, group=T, cost=0.0))
    world.run(ops.enqueue(KEYS, [], [Entry("a", free, 0.0, None, 0.0)]))
    world.run(ops.hold_key(KEYS, T, 30.0))
    assert claim(world).elements == []


def test_a_key_waits_for_no_tokens_when_there_is_no_rate_of_keys_any_more(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/d", "fair": 1, "limited": 1})
    send(world, "a", "b")
    assert len(claim(world, 1).elements) == 1
    world.redis.hdel(KEYS.config, "key_rate")
    assert claim(world).elements == [laned("b")]


def test_full_buckets_are_forgotten(world):
    world.given(leases={"w": HOUR}, config={"key_rate": "1/s", "limited": 1})
    world.redis.zadd(KEYS.buckets, {f"{number:016d}": 1 for number in range(2500)})
    for _ in range(3):
        claim(world)
    assert world.redis.zcard(KEYS.buckets) == 0


def test_purge_and_cancel_leave_no_slot(two):
    send(two, "a", "b", "c")
    send(two, "z", delay=60.0)
    assert two.run(ops.cancel(KEYS, "z")) == 1
    while two.run(ops.purge(KEYS, 2)).more:
        pass
    assert places(two) == {}


def test_messages_with_one_id_share_one_slot(two):
    send(two, "a", "b")
    two.run(ops.enqueue(KEYS, [], [Entry("a", laned("a2"), 0.0, None, 0.0)]))
    claim(two)
    two.run(ops.settle(KEYS, "w", 15.0, [laned("a"), laned("b")]))
    assert places(two) == {"messages": "a2", "active": slots((T, "a"))}


@pytest.mark.parametrize(("most", "begun"), [(3, 2), (None, 4)])
def test_after_a_change_of_the_limits_of_keys_lines_begin_though_no_message_ends(world, most, begun):
    keys = [one + other for one in "abcde" for other in "abcdefghij"]
    world.given(leases={"w": HOUR}, config={"key_concurrency": 1, "limited": 1})
    for number in range(5):
        for key in keys:
            send(world, key + "nopqr"[number], key=key)
    assert len(claim(world, 100).elements) == 50
    if most is None:
        world.redis.hdel(KEYS.config, "key_concurrency")
    else:
        world.redis.hset(KEYS.config, "key_concurrency", most)
    taken = [one for _ in range(5) for one in claim(world, 100).elements]
    first = [key + letter for letter in "opqr"[:begun] for key in keys]
    assert sorted(Message.decode("q", one).id for one in taken) == sorted(first)
    assert world.redis.hget(KEYS.flow, "lanes_from") is None
    assert (world.redis.hget(KEYS.config, "limited") is not None) == (most is not None)


def test_a_change_of_limits_begins_no_line_whose_former_home_may_have_messages(world):
    arriving = ops.OwnedBuckets(bitmap(range(4096)), 1, bitmap(range(4096)))
    world.given(leases={"w": HOUR}, config=TWO)
    world.run(ops.take_in(KEYS, arriving, retired=False))
    world.redis.zadd(KEYS.waiting, {f"{T}{1:016d}".encode() + laned("a"): 0})
    assert claim(world).elements == []
    assert world.redis.zcard(KEYS.waiting) == 1
    assert world.run(ops.release_lines(KEYS, [T], 1)) == 1
    assert claim(world).elements == [laned("a")]
