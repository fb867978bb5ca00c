"""Priorities: three lists of ready messages, and `messages` is the one that idle consumers wait on."""

from reliq import ops
from reliq.model.element import Extra
from reliq.ops import Entry
from tests.support.state import HOUR, KEYS, element, name_of


def urgent(name, priority):
    return element(name, extra=None if priority == "normal" else Extra(priority=priority))


def send(world, priority, *names):
    world.run(ops.enqueue(KEYS, [], [Entry(name, urgent(name, priority), 0.0, None, 0.0) for name in names]))


def lists(world):
    return {name: value for name, value in world.state().items() if name in {"messages", "high", "low", "processing:w"}}


def test_each_priority_has_its_list_and_the_first_of_all_wakes_the_consumers(world):
    send(world, "low", "a", "b")
    send(world, "high", "c")
    send(world, "normal", "d")
    assert lists(world) == {"messages": "d a", "low": "b", "high": "c"}


def test_claim_takes_16_high_4_normal_and_1_low(world):
    names = [f"{letter}-{chr(97 + place // 26)}{chr(97 + place % 26)}" for letter in "n" for place in range(40)]
    send(world, "normal", *names)
    send(world, "high", *(name.replace("n-", "h-") for name in names))
    send(world, "low", *(name.replace("n-", "l-") for name in names))
    world.given(leases={"w": HOUR})
    taken = [name_of(one)[0] for one in world.run(ops.claim(KEYS, "w", 15.0, 42)).elements]
    assert {letter: taken.count(letter) for letter in "hnl"} == {"h": 32, "n": 8, "l": 2}


def test_claims_of_one_message_each_have_the_same_shares(world):
    world.given(leases={"w": HOUR})
    send(world, "normal", *("n-" + chr(97 + place) for place in range(20)))
    send(world, "high", *("h-" + chr(97 + place) for place in range(20)))
    send(world, "low", *("l-" + chr(97 + place) for place in range(20)))
    taken = [name_of(world.run(ops.claim(KEYS, "w", 15.0, 1)).elements[0])[0] for _ in range(21)]
    assert taken == list("hhhhnhhhhnhhhhnhhhhnl")


def test_what_one_lacks_the_others_give(world):
    send(world, "low", *("l-" + chr(97 + place) for place in range(10)))
    world.given(leases={"w": HOUR})
    assert len(world.run(ops.claim(KEYS, "w", 15.0, 8)).elements) == 8
    assert lists(world)["messages"] == "l-i"  # those that idle consumers would find


def test_a_settle_that_claims_follows_them_too(world):
    send(world, "normal", "n", "m")
    send(world, "high", "h")
    world.given(leases={"w": HOUR})
    answer = world.run(ops.settle(KEYS, "w", 15.0, [], limit=1))
    assert [name_of(one) for one in answer.elements] == ["h"]


def test_behind_a_blmove_a_claim_of_nothing_wakes_the_next_consumer(world):
    send(world, "low", "a", "b", "c")
    world.given(leases={"w": HOUR})
    world.run(ops.block(KEYS, "w", 1.0))
    assert lists(world) == {"processing:w": "a", "low": "c b"}
    world.run(ops.claim(KEYS, "w", 15.0, 0))
    assert lists(world) == {"processing:w": "a", "messages": "b", "low": "c"}


def test_a_retry_keeps_its_priority(world):
    send(world, "normal", "n")
    world.redis.zadd(KEYS.delayed, {urgent("h", "high"): world.now - 1000})
    world.run(ops.promote(KEYS, 100))
    assert lists(world) == {"messages": "n", "high": "h"}


def test_the_length_counts_all_of_them(world):
    world.given(config={"max_length": 3})
    send(world, "low", "a", "b")
    send(world, "high", "c")
    assert world.run(ops.enqueue(KEYS, [b"x"])).status == "full"
    assert world.run(ops.stats(KEYS, [])).ready == 3


def test_purge_takes_all_of_them(world):
    send(world, "low", "a", "b")
    send(world, "high", "c")
    assert world.run(ops.purge(KEYS, 1000)).removed == 3
    assert lists(world) == {}


def test_a_full_redis_still_gives_by_priority(world):
    send(world, "low", "a", "b")
    send(world, "high", "c")
    world.given(leases={"w": HOUR})
    world.fill()
    assert [name_of(one) for one in world.run(ops.claim(KEYS, "w", 15.0, 3)).elements] == ["c", "a", "b"]
