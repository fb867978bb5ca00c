"""settle: messages leave processing, for good or for elsewhere, and only if they are still there."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from reliq.model.message import Message
from reliq.ops import Destination, Mark, Move
from tests.support.state import HOUR, KEYS, element, elements

HOLDS = {"processing": {"w": "c b a"}, "leases": {"w": HOUR}}


def settle(world, acks=(), moves=(), limit=0):
    return world.run(ops.settle(KEYS, "w", 15.0, elements(*acks), moves, limit))


def move(name, destination, counter, delay=0.0):
    return Move(element(name), destination, counter, name, element(name + "2"), delay)


def test_ack_removes_exactly_the_message(world):
    world.given(**HOLDS)
    assert settle(world, ["b"]).codes == "d"
    assert world.state() == {
        "processing:w": "c a",
        "lease:w": "alive",
        "consumers": {"w"},
        "counters": {"acked": 1},
    }


def test_ack_twice_is_already_and_counts_once(world):
    world.given(**HOLDS)
    settle(world, ["b"])
    assert settle(world, ["b", "a"]).codes == "ad"
    assert world.state()["counters"] == {"acked": 2}


def test_ack_after_the_lease_was_lost_is_lost_and_does_not_bring_it_back(world):
    world.given(messages="a2")
    before = world.state()
    answer = settle(world, ["a"])
    assert (answer.status, answer.codes) == ("lost", "l")
    assert world.state() == before


def test_a_lost_consumer_claims_nothing(world):
    world.given(messages="a")
    assert settle(world, ["x"], limit=5).elements == []
    assert world.state() == {"messages": "a"}


def test_retry_goes_to_delayed_and_release_to_the_tail(world):
    world.given(messages="d", **HOLDS)
    moves = [move("a", "delayed", "retried", 60.0), move("b", "tail", "released"), move("c", "head", "requeued")]
    assert settle(world, moves=moves).codes == "ddd"
    assert world.state() == {
        "messages": "c2 d b2",
        "delayed": "a2",
        "index": {"a"},
        "lease:w": "alive",
        "consumers": {"w"},
        "counters": {"retried": 1, "released": 1, "requeued": 1},
    }
    assert world.now + 60_000 <= world.redis.zscore(KEYS.delayed, element("a2")) < world.now + 61_000


def test_dead_goes_to_the_dead_letters_and_is_counted_by_reason(world):
    world.given(**HOLDS)
    settle(world, moves=[move("a", "dead", "dead:rejected")])
    state = world.state()
    assert (state["dead"], state["index"]) == ("a2", {" a"})
    assert state["counters"] == {"dead:rejected": 1, "dead_lettered": 1}


@pytest.mark.parametrize("destination", ["head", "tail", "delayed", "dead"])
def test_a_move_twice_makes_no_second_copy(world, destination):
    world.given(**HOLDS)
    one = move("a", destination, "retried", 1.0)
    assert settle(world, moves=[one]).codes == "d"
    before = world.state()
    assert settle(world, moves=[one]).codes == "a"
    assert world.state() == before


@pytest.mark.parametrize("destination", ["head", "tail", "delayed", "round", "rest"])
def test_a_message_that_was_cancelled_while_it_was_held_is_deleted_not_put_back(world, destination):
    world.given(**HOLDS)
    world.redis.hset(KEYS.told, "a", Message.decode("q", element("a")).enqueued_at)
    world.redis.hset(KEYS.told, "b", Message.decode("q", element("b")).enqueued_at - 1)
    moves = [move("a", destination, "retried", 1.0), move("b", "tail", "released"), move("c", "tail", "released")]
    assert settle(world, moves=moves).codes == "cdd"
    state = world.state()
    assert (state["messages"], state["counters"]) == ("b2 c2", {"cancelled": 1, "released": 2})
    assert "delayed" not in state


def test_a_cancelled_message_is_a_dead_letter_if_it_fails_for_good(world):
    world.given(**HOLDS)
    world.redis.hset(KEYS.told, "a", Message.decode("q", element("a")).enqueued_at)
    settle(world, moves=[move("a", "dead", "dead:rejected")])
    assert world.state()["dead"] == "a2"


@pytest.mark.parametrize("destination", ["head", "tail", "delayed", "dead"])
def test_a_move_after_the_lease_was_lost_makes_no_copy(world, destination):
    world.given(messages="a3")
    before = world.state()
    assert settle(world, moves=[move("a", destination, "retried", 1.0)]).codes == "l"
    assert world.state() == before


def test_settle_and_claim_in_one_step(world):
    world.given(messages="e d", **HOLDS)
    answer = settle(world, ["a"], [move("b", "delayed", "retried", 1.0)], limit=1)
    assert (answer.status, answer.codes, answer.elements) == ("ok", "dd", elements("d"))
    state = world.state()
    assert (state["messages"], state["processing:w"]) == ("e", "d c")


def test_a_paused_queue_settles_but_gives_nothing(world):
    world.given(messages="d", config={"paused": 1}, **HOLDS)
    answer = settle(world, ["a"], limit=5)
    assert (answer.status, answer.codes, answer.elements) == ("paused", "d", [])
    assert world.state()["messages"] == "d"


def test_a_full_redis_can_be_drained(world):
    world.given(messages="d", **HOLDS)
    world.fill()
    moves = [move("b", "delayed", "retried", 60.0), move("c", "dead", "dead:rejected")]
    assert settle(world, ["a"], moves, limit=5).codes == "ddd"
    state = world.state()
    assert (state["processing:w"], state["delayed"], state["dead"]) == ("d", "b2", "c2")


@pytest.mark.parametrize("key", [KEYS.messages, KEYS.delayed, KEYS.dead])
def test_a_destination_of_another_type_is_refused_before_anything_is_removed(world, key):
    world.given(**HOLDS)
    world.redis.set(key, "somebody else's")
    before = world.state()
    with pytest.raises(RedisUnsuitable, match="another type"):
        settle(world, ["c"], [move("a", "tail", "released")])
    assert world.state() == before


def test_an_ack_passes_though_the_queue_key_is_of_another_type(world):
    world.given(**HOLDS)
    world.redis.set(KEYS.messages, "somebody else's")
    assert settle(world, ["a"]).codes == "d"


MARK = KEYS.done("ia")


def done(name):
    return Move(element(name), Destination.DONE, "acked", name, mark=Mark(MARK, 60.0))


def test_done_removes_the_message_counts_an_ack_and_leaves_a_mark_for_its_window(world):
    world.given(**HOLDS)
    assert settle(world, ["b"], [done("a"), move("c", "head", "requeued")]).codes == "ddd"
    assert world.state()["counters"] == {"acked": 2, "requeued": 1}
    assert 59_000 < world.redis.pttl(MARK) <= 60_000


def test_done_twice_is_already_and_counts_once(world):
    world.given(**HOLDS)
    settle(world, moves=[done("a")])
    before = world.state()
    assert settle(world, moves=[done("a")]).codes == "a"
    assert world.state() == before


def test_done_after_the_lease_was_lost_touches_no_message_but_leaves_the_mark(world):
    world.given(messages="a2")
    assert settle(world, moves=[done("a")]).codes == "l"
    assert world.redis.exists(MARK)
    assert (world.redis.llen(KEYS.messages), world.redis.exists(KEYS.counters)) == (1, 0)


@pytest.mark.parametrize("lease", [HOUR, None])
def test_a_mark_is_left_in_a_full_redis(world, lease):
    world.given(processing={"w": "a"}, leases={"w": lease} if lease else {})
    world.fill()
    assert settle(world, moves=[done("a")]).codes == "d"
    assert world.redis.exists(MARK)


def test_done_is_refused_before_anything_is_removed_when_a_key_is_of_another_type(world):
    world.given(**HOLDS)
    world.redis.set(KEYS.dead, "somebody else's")
    before = world.state()
    with pytest.raises(RedisUnsuitable, match="another type"):
        settle(world, moves=[done("a")])
    assert world.state() == before
    assert not world.redis.exists(MARK)


def test_each_message_done_has_its_own_mark(world):
    world.given(**HOLDS)
    other = Move(element("b"), Destination.DONE, "acked", "b", mark=Mark(KEYS.done("ib"), 5.0))
    settle(world, moves=[done("a"), move("c", "tail", "released"), other])
    assert world.redis.pttl(MARK) > 59_000
    assert 0 < world.redis.pttl(KEYS.done("ib")) <= 5_000


def test_what_blmove_moved_counts_as_claimed_once_with_its_settlement(world):
    """A settle is sent again after a lost reply: it counts nothing twice."""
    world.given(leases={"w": HOUR}, processing={"w": "a b c"})
    dead = Move(element("c"), Destination.DEAD, "dead:rejected", "c", element("c2"))
    call = ops.settle(KEYS, "w", 15.0, elements("a", "b"), [dead], uncounted={element("b"), element("c")})
    assert [world.run(call).codes for _ in range(2)] == ["ddd", "aaa"]
    assert world.state()["counters"]["claimed"] == 2


MANY = [f"m{number}" for number in range(12)]  # the oldest first
HOLDS_MANY = {"processing": {"w": " ".join(reversed(MANY))}, "leases": {"w": HOUR}}


@pytest.mark.parametrize("known", [True, False], ids=["places known", "places unknown"])
def test_many_acks_out_of_a_row_remove_exactly_these_messages(world, known):
    world.given(**HOLDS_MANY)
    acks = MANY[1::2]
    places = {element(one): MANY.index(one) for one in acks} if known else {}
    answer = world.run(ops.settle(KEYS, "w", 15.0, elements(*acks), places=places))
    assert answer.codes == "dddddd"
    assert world.state() == {
        "processing:w": " ".join(reversed(MANY[::2])),
        "lease:w": "alive",
        "consumers": {"w"},
        "counters": {"acked": 6},
    }


def test_many_of_which_some_were_settled_before_or_are_named_twice(world):
    world.given(**HOLDS_MANY)
    settle(world, ["m3"])
    assert settle(world, ["m1", "m3", "m5", "m5", "x", "m7"]).codes == "dadaad"
    assert world.state()["processing:w"] == " ".join(
        reversed([one for one in MANY if one not in ("m1", "m3", "m5", "m7")])
    )
    assert world.state()["counters"] == {"acked": 4}


def test_many_acks_and_moves_behind_a_row(world):
    world.given(**HOLDS_MANY)
    moves = [
        move("m6", "tail", "released"),
        move("m8", "delayed", "retried", 60.0),
        move("m10", "dead", "dead:rejected"),
    ]
    acks = elements(*MANY[:4], "m5", "m9")
    places = {element(one): place for place, one in enumerate(MANY)}
    answer = world.run(ops.settle(KEYS, "w", 15.0, acks, moves, row=4, places=places))
    assert answer.codes == "d" * 9
    state = world.state()
    assert (state["processing:w"], state["messages"], state["delayed"], state["dead"]) == (
        "m11 m7 m4",
        "m62",
        "m82",
        "m102",
    )
    assert state["counters"] == {"acked": 6, "released": 1, "retried": 1, "dead_lettered": 1, "dead:rejected": 1}


def test_a_full_redis_can_still_be_emptied_of_many(world):
    world.given(**HOLDS_MANY)
    world.fill()
    assert world.run(ops.settle(KEYS, "w", 0.0, elements(*MANY[:10:2]))).codes == "ddddd"
    assert settle(world, MANY[1::2]).codes == "dddddd"
    assert world.state()["processing:w"] == "m10"
