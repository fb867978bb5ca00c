"""Costs of messages within rates: what is taken at the claim, and what a charge puts right."""

import random

import msgspec
import pytest

from reliq import ops
from reliq.features.charges import ops as own
from reliq.features.schedules import ops as schedule_ops
from reliq.features.schedules.model import Definition, State
from reliq.features.schedules.upcoming import prepared
from reliq.model.element import Extra, group_of, latest_group_of, limit_group_of
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.ops import Entry
from tests.support.state import HOUR, KEYS, element

ROOM = 2**40
T = limit_group_of("t")
HOURLY = {"rate": "3600/h", "burst": 10, "limited": 1}  #: a token a second
BY_KEY = {"key_rate": "36000/s", "limited": 1}  #: a bucket of 3,600, and a token in 1/36 ms


def costing(name, cost, **extra):
    return element(name, extra=Extra(cost=None if cost is None else float(cost), **extra))


def send(world, *elements):
    entries = [Entry(Message.decode("q", one).id, one, 0.0, None, 0.0) for one in elements]
    world.run(ops.enqueue(KEYS, [], entries))


def claim(world, n=10):
    answer = world.run(ops.claim_limited(KEYS, "w", 15.0, n, ROOM, reports=False))
    return [Message.decode("q", one).id for one in answer.elements], answer


def charge(world, message, actual):
    world.run(own.charge(KEYS, Message.decode("q", message), actual))


def missing(world):
    """How many tokens the bucket of the queue lacks."""
    now = world.redis.time()
    full_at = float(world.redis.hget(KEYS.flow, "full_at") or now[0] * 1000)
    return full_at / 1000 - now[0] - now[1] / 1e6


def lacks(world, group):
    now = world.redis.time()
    return (float(world.redis.zscore(KEYS.buckets, group)) / 1000 - now[0] - now[1] / 1e6) * 36_000


@pytest.fixture
def world(world):
    world.given(leases={"w": HOUR}, config=HOURLY)
    return world


@pytest.mark.parametrize(
    "tail",
    [
        {}, {"batch": "abcdefABCDEF"}, {"key": "k", "group": group_of("k")}, {"priority": "high"},
        {"limit_key": "t", "lane": True, "group": T}, {"errors": (), "reason": "x¤cost"},
        {"batch": "abcdefABCDEF", "limit_key": "t", "lane": True, "priority": "low", "group": T},
        {"key": "k", "cycle": True, "group": group_of("k")},
    ],
)  # fmt: skip
@pytest.mark.parametrize("cost", [None, 4, 0, 3, 123_456_789, 1_000_000_000])
def test_scripts_find_the_cost_before_all_other_fields_of_the_tail(world, tail, cost):
    world.redis.hset(KEYS.config, "weighted", 1)
    world.redis.lpush(KEYS.messages, costing("a", cost, **tail))
    assert claim(world)[0] == ["a"]
    assert missing(world) == pytest.approx(1 if cost is None else cost, abs=1)


@pytest.mark.parametrize("text", ["¤cost˿~~~~~~~~", "\udcffcost", "cost", "¤cost˿\x00\x00\x00\x00\x00\x00\x00"])
def test_no_text_looks_like_a_cost(world, text):
    world.redis.hset(KEYS.config, "weighted", 1)
    text = text.encode("utf-8", "ignore").decode()
    world.redis.lpush(KEYS.messages, element("a", extra=Extra(key=text)))
    claim(world)
    assert missing(world) == pytest.approx(1, abs=0.9)


def test_messages_start_while_the_bucket_has_what_they_cost_in_their_order(world):
    send(world, costing("a", 4), costing("b", 5), costing("c", 3), element("d"))
    taken, answer = claim(world)
    assert (taken, answer.reason) == (["a", "b"], "rate")
    assert 1 < answer.wait <= 2  # of three tokens there is one
    assert [Message.decode("q", one).id for one in reversed(world.redis.lrange(KEYS.messages, 0, -1))] == ["c", "d"]
    assert claim(world)[0] == []
    world.redis.hset(KEYS.flow, "full_at", world.now + 6_500)
    assert claim(world)[0] == ["c"]
    assert world.state()["counters"]["claimed"] == 3


def test_the_cost_of_a_message_that_waited_for_its_key_counts_in_the_claim_that_reaches_it(world):
    """The first one with a cost, which becomes ready when the same claim has taken the one before it."""
    world.redis.hset(KEYS.config, "fair", 1)
    of_key = {"limit_key": "t", "lane": True, "group": T}
    send(world, costing("a", None, **of_key), costing("b", 10, **of_key))
    taken, answer = claim(world)
    assert (taken, answer.reason) == (["a"], "rate")
    assert missing(world) == pytest.approx(1, abs=0.9)


def test_the_cost_of_a_message_that_was_delayed_counts(world):
    world.run(ops.enqueue(KEYS, [], [Entry("a", costing("a", 4), 60.0, None, 0.0)]))
    world.redis.zadd(KEYS.delayed, {costing("a", 4): 1})
    world.run(ops.promote(KEYS, 100))
    claim(world)
    assert missing(world) == pytest.approx(4, abs=1)


def test_the_cost_of_a_tick_counts(world):
    definition = Definition("s", "q", "60s", b"x", cost=4)
    state = State.at(definition, world.run(ops.server_time()) - 60_000)
    world.run(schedule_ops.schedule_put(KEYS, [schedule_ops.Written("s", b"", state, definition)]))
    stored = schedule_ops.Stored(definition, state, msgspec.json.encode(state))
    tick = prepared(KEYS, stored, world.run(ops.server_time()))
    assert tick is not None
    assert world.run(schedule_ops.fire(KEYS, [tick.fire]))[1] == [schedule_ops.Firing.SENT]
    claim(world)
    assert missing(world) == pytest.approx(4, abs=1)


def test_a_message_that_costs_more_than_a_full_bucket_waits_for_one_and_the_next_ones_for_the_rest(world):
    send(world, element("a"), costing("b", 25), element("c"))
    assert claim(world)[0] == ["a"]
    world.redis.hdel(KEYS.flow, "full_at")
    taken, answer = claim(world)
    assert (taken, answer.reason) == (["b"], "rate")
    assert 15 < answer.wait <= 16  # the bucket lacks 25, of ten; a token comes each second
    assert claim(world)[0] == []


def test_a_cost_of_nothing_waits_for_no_tokens(world):
    send(world, costing("a", 10), costing("b", 0), element("c"))
    assert claim(world)[0] == ["a", "b"]


def test_what_waits_for_tokens_keeps_its_place_among_priorities(world):
    send(world, *(costing("h" * number, 4, priority="high") for number in range(1, 5)), costing("x", 4))
    assert len(claim(world)[0]) == 2
    world.redis.hdel(KEYS.flow, "full_at")
    assert len(claim(world)[0]) == 2
    world.redis.hdel(KEYS.flow, "full_at")
    assert len(claim(world)[0]) == 1


def test_each_key_has_a_budget_of_its_own(world):
    world.redis.delete(KEYS.config)
    world.given(config=BY_KEY)
    one = {"limit_key": "t", "lane": True, "group": T}
    other = {"limit_key": "u", "lane": True, "group": limit_group_of("u")}
    send(world, *(costing(name, 3_000_000, **one) for name in "ab"), costing("c", 3_000, **other))
    assert claim(world)[0] == ["a", "c"]
    assert lacks(world, T) == pytest.approx(3_000_000, rel=0.05)
    state = world.state()
    assert (state["processing:w"], state["delayed"]) == ("c a", "b")  # until its key has a full bucket again
    due = world.redis.zscore(KEYS.delayed, costing("b", 3_000_000, **one)) / 1000
    assert due == pytest.approx(world.now / 1000 + (3_000_000 - 3_600 + 3_600) / 36_000, abs=1)


@pytest.mark.parametrize(("actual", "left"), [(9, 1), (2, 8), (0, 10), (40, -30)])
def test_a_charge_counts_in_place_of_the_cost(world, actual, left):
    message = costing("a", 5)
    send(world, message)
    claim(world)
    charge(world, message, actual)
    charge(world, message, actual)  # again after a lost reply
    assert 10 - missing(world) == pytest.approx(left, abs=0.9)


def test_charges_of_one_run_replace_each_other_and_another_run_is_charged_anew(world):
    message, again = costing("a", 5), costing("a2", 5)
    send(world, message)
    claim(world)
    for actual in (2, 7, 6):
        charge(world, message, actual)
    assert missing(world) == pytest.approx(6, abs=0.9)
    charge(world, again, 8)  # at its claim, another five were taken
    assert missing(world) == pytest.approx(9, abs=0.9)
    assert all(world.redis.pttl(key) > 0 for key in world.redis.scan_iter("reliq:{q}:charged:*"))


def test_a_charge_moves_the_bucket_of_the_key_too(world):
    world.given(config=BY_KEY)
    message = costing("a", 3_000_000, limit_key="t", lane=True, group=T)
    send(world, message)
    claim(world)
    charge(world, message, 9_000_000)
    assert lacks(world, T) == pytest.approx(9_000_000, rel=0.05)
    charge(world, message, 1_000_000)
    assert lacks(world, T) == pytest.approx(1_000_000, rel=0.2)


def test_a_bucket_that_is_full_again_is_not_fuller_for_what_was_not_spent(world):
    message = costing("a", 5)
    send(world, message)
    claim(world)
    world.redis.hset(KEYS.flow, "full_at", world.now - 60_000)
    charge(world, message, 0)
    send(world, costing("b", 8), costing("c", 3))
    assert claim(world)[0] == ["b"]


def test_in_a_queue_without_rates_a_charge_changes_nothing(world):
    world.redis.delete(KEYS.config)
    charge(world, costing("a", 5), 9)
    assert "flow" not in world.state()
    assert "buckets" not in world.state()


@pytest.mark.parametrize("seed", range(20))
def test_no_more_is_spent_than_the_budget_brings(world, seed):
    """Time is moved on by moving the bucket back. No message costs more than a full bucket, so nothing is borrowed but
    by charges, which are paid back before anything starts.
    """
    chance, spent, brought = random.Random(seed), 0.0, 10.0
    for number in range(1, 41):
        send(world, costing("m" * number, chance.randint(0, 10)))
        _, answer = claim(world, chance.randint(1, 3))
        for raw in answer.elements:
            message = Message.decode("q", raw)
            spent += message.cost
            if chance.random() < 0.4:
                actual = chance.randint(0, 14)
                charge(world, raw, actual)
                spent += actual - message.cost
        passed = chance.choice([0.0, 0.5, 3.0, 20.0])
        full_at = float(world.redis.hget(KEYS.flow, "full_at") or 0)
        world.redis.hset(KEYS.flow, "full_at", f"{full_at - passed * 1000:.6f}")
        brought += passed
    assert 60 < spent <= brought + 14 + 1  # the latest charges; a second that the test took


def test_the_option_of_a_message_is_what_scripts_find():
    message = Message.decode("q", NewMessage("x", cost=3000, limit_key="t").element(0))
    assert message.cost == 3000
    assert Message.decode("q", NewMessage("x", cost=1, limit_key="t").element(0)).cost == 1
    assert Message.decode("q", message.again()).cost == 3000


@pytest.mark.parametrize(("older", "newer"), [(1, 8), (8, 1), (0, 8), (8, 0), (3, 3)])
def test_a_message_that_takes_the_place_of_a_claimed_one_is_paid_for_in_its_place(world, older, newer):
    """Its consumer has claimed the older one: the newer one runs, and was perhaps more, or less, to be paid for."""
    of_key = {"group": latest_group_of("d")}
    for name, cost in ("a", older), ("b", newer):
        entry = Entry(name, costing(name, cost, **of_key), 0.0, "d", 0.0, replace=True)
        world.run(ops.enqueue(KEYS, [], [entry]))
    assert claim(world)[0] == ["a"]
    for _ in range(2):  # again after a lost answer
        assert world.run(ops.newest(KEYS, "w", [latest_group_of("d")])) == [costing("b", newer, **of_key)]
    assert missing(world) == pytest.approx(newer, abs=0.9)
