"""enqueue and push: new messages enter the queue, all of a call or none of it."""

import pytest

from reliq import ops
from reliq.errors import QueueFull, RedisUnsuitable
from reliq.ops import Entry
from tests.support.state import KEYS, element, elements


def entry(name, delay=0.0, dedup_key=None, digest=""):
    return Entry(name.rstrip("0123456789"), element(name), delay, dedup_key, 60.0, digest)


def test_messages_are_pushed_at_the_head_in_the_order_of_the_call(world):
    world.given(messages="a")
    assert world.run(ops.enqueue(KEYS, elements("b", "c"))).status == "ok"
    assert world.state() == {"messages": "c b a", "counters": {"enqueued": 2}}


def test_a_delayed_message_waits_in_the_order_of_its_time(world):
    world.run(ops.enqueue(KEYS, [], [entry("late", 60), entry("soon", 5)]))
    assert world.state() == {"delayed": "soon late", "index": {"soon", "late"}, "counters": {"enqueued": 2}}
    score = float(world.redis.zscore(KEYS.delayed, element("soon")))
    assert world.now + 5000 <= score < world.now + 6000


def test_a_duplicate_answers_the_first_id_and_is_not_enqueued(world):
    world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="order-1")]))
    answer = world.run(ops.enqueue(KEYS, [], [entry("b", dedup_key="order-2"), entry("c", dedup_key="order-1")]))
    assert answer.first_ids == {1: "a"}
    state = world.state()
    assert (state["messages"], state["counters"]) == ("b a", {"enqueued": 2, "deduplicated": 1})
    assert 0 < world.redis.pttl(KEYS.dedup("order-1")) <= 60_000


def test_a_duplicate_within_one_call_counts_too(world):
    answer = world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="k"), entry("b", dedup_key="k")]))
    assert answer.first_ids == {1: "a"}
    assert world.state()["messages"] == "a"


def test_the_same_key_after_its_window_is_new(world):
    world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="k")]))
    world.redis.pexpire(KEYS.dedup("k"), 0)
    world.run(ops.enqueue(KEYS, [], [entry("b", dedup_key="k")]))
    assert world.state()["messages"] == "b a"


def test_twice_with_the_same_sequence_enqueues_once(world):
    call = ops.enqueue(KEYS, elements("a"), [entry("b", dedup_key="k")], "producer", 7)
    assert world.run(call).status == "ok"
    before = world.state()
    answer = world.run(call)
    assert (answer.status, answer.first_ids) == ("repeated", {})
    assert world.state() == before


def test_a_repeat_answers_the_first_ids_of_its_duplicates_again(world):
    world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="k")], "one", 1))
    call = ops.enqueue(KEYS, [], [entry("b", dedup_key="k")], "two", 1)
    assert world.run(call).first_ids == world.run(call).first_ids == {0: "a"}


def test_a_later_sequence_and_another_producer_are_new(world):
    world.run(ops.enqueue(KEYS, elements("a"), (), "one", 1))
    world.run(ops.enqueue(KEYS, elements("b"), (), "one", 2))
    world.run(ops.enqueue(KEYS, elements("c"), (), "two", 1))
    assert world.state()["messages"] == "c b a"


def test_a_full_queue_takes_none_of_the_call(world):
    world.given(messages="a", delayed={"b": 60_000}, config={"max_length": 3})
    before = world.state()
    answer = world.run(ops.enqueue(KEYS, elements("c", "d"), (), "one", 1))
    assert (answer.status, answer.length, answer.max_length) == ("full", 2, 3)
    assert world.state() == before
    assert world.run(ops.enqueue(KEYS, elements("c"), (), "one", 1)).status == "ok"


def test_a_duplicate_fits_into_a_full_queue(world):
    world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="k")]))
    world.redis.hset(KEYS.config, "max_length", 1)
    assert world.run(ops.enqueue(KEYS, [], [entry("b", dedup_key="k")])).first_ids == {0: "a"}


@pytest.mark.parametrize("call", [{"plain": elements("b")}, {"plain": [], "entries": [entry("b", 5, "k")]}])
def test_a_full_redis_takes_nothing(world, call):
    world.given(messages="a")
    world.fill()
    before = world.state()
    with pytest.raises(QueueFull):
        world.run(ops.enqueue(KEYS, call["plain"], call.get("entries", ()), "one", 1))
    assert world.state() == before


@pytest.mark.parametrize("key", [KEYS.messages, KEYS.delayed])
def test_a_key_of_another_type_is_refused_before_anything_is_written(world, key):
    world.redis.set(key, "somebody else's")
    before = world.state()
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.enqueue(KEYS, elements("a"), [entry("b", 5, "k")], "one", 1))
    assert world.state() == before


def test_thousands_of_messages_in_one_call_keep_their_order(world):
    names = [element("m", nonce=number) for number in range(2500)]
    world.run(ops.enqueue(KEYS, names))
    assert world.redis.lrange(KEYS.messages, 0, -1) == names[::-1]


def test_the_same_key_with_another_body_is_a_duplicate_and_a_conflict(world):
    world.run(ops.enqueue(KEYS, [], [entry("a", dedup_key="k", digest="01")]))
    same, other = entry("b", dedup_key="k", digest="01"), entry("c", dedup_key="k", digest="02")
    answer = world.run(ops.enqueue(KEYS, [], [same, other], "one", 1))
    assert (answer.first_ids, answer.conflicts) == ({0: "a", 1: "a"}, {1})
    before = world.state()
    assert before["counters"] == {"enqueued": 1, "deduplicated": 2, "dedup_conflicts": 1}
    again = world.run(ops.enqueue(KEYS, [], [same, other], "one", 1))
    assert (again.status, again.first_ids, again.conflicts) == ("repeated", answer.first_ids, answer.conflicts)
    assert world.state() == before


def test_a_conflict_within_one_call_counts_too(world):
    call = [entry("a", dedup_key="k", digest="01"), entry("b", dedup_key="k", digest="02")]
    assert world.run(ops.enqueue(KEYS, [], call)).conflicts == {1}


def test_a_key_that_was_written_without_a_digest_never_conflicts(world):
    world.redis.set(KEYS.dedup("k"), "a")
    answer = world.run(ops.enqueue(KEYS, [], [entry("b", dedup_key="k", digest="02")]))
    assert (answer.first_ids, answer.conflicts) == ({0: "a"}, frozenset())


# --- push: the short way of messages without options into a queue without limits ---


def test_push_does_the_same_in_less(world):
    world.given(messages="a")
    assert world.run(ops.push(KEYS, elements("b", "c"), "p", 7, 1_700_000_000_000)) is True
    assert world.state() == {
        "messages": "c b a", "counters": {"enqueued": 2}, "producers": {"p": "7 1700000000000"},
    }  # fmt: skip


def test_a_push_that_is_repeated_is_carried_out_once(world):
    for _ in range(2):
        assert world.run(ops.push(KEYS, elements("a"), "p", 7, 1)) is True
    assert (world.state()["messages"], world.state()["counters"]) == ("a", {"enqueued": 1})


@pytest.mark.parametrize("limit", ["max_length", "max_bytes"])
def test_push_leaves_a_queue_with_a_limit_to_enqueue(world, limit):
    world.given(config={limit: 10**9})
    assert world.run(ops.push(KEYS, elements("a"), "p", 7, 1)) is False
    assert world.state() == {"config": {limit: "1000000000"}}
    assert world.run(ops.enqueue(KEYS, elements("a"), (), "p", 7)).status == "ok"


def test_enqueue_knows_what_push_has_carried_out_and_the_other_way_round(world):
    world.run(ops.push(KEYS, elements("a"), "p", 7, 1))
    assert world.run(ops.enqueue(KEYS, elements("a"), (), "p", 7)).status == "repeated"
    world.run(ops.enqueue(KEYS, elements("b"), (), "p", 8))
    assert world.run(ops.push(KEYS, elements("b"), "p", 8, 1)) is True
    assert world.state()["messages"] == "b a"


def test_push_takes_thousands(world):
    world.run(ops.push(KEYS, [element("a", nonce=number) for number in range(2500)], "p", 1, 1))
    assert world.redis.llen(KEYS.messages) == 2500


def test_push_refuses_a_foreign_key_before_anything_is_written(world):
    world.redis.set(KEYS.messages, "x")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.push(KEYS, elements("a"), "p", 1, 1))
    assert world.state() == {"messages": b"x"}


@pytest.mark.parametrize("limit", [{"max_length": 1}, {"max_bytes": 1}])
def test_a_queue_above_its_limit_answers_a_duplicate(world, limit):
    first = Entry("a", element("a"), 0.0, "key", 60.0)
    world.run(ops.enqueue(KEYS, [], [first]))
    world.given(messages="x y z", config=limit)
    again = Entry("b", element("b"), 0.0, "key", 60.0)
    answer = world.run(ops.enqueue(KEYS, [], [again]))
    assert (answer.status, answer.first_ids) == ("ok", {0: "a"})
    assert world.run(ops.enqueue(KEYS, [element("c")], [again])).status == "full"
