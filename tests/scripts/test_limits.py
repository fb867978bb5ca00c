"""claim_limited, breaker, switch_breaker, hold: what a queue's limits give out, and when."""

import time

import pytest

from reliq import ops
from reliq.model.breaker import Breaker
from tests.support.state import KEYS

ROOM = 2**40
RULE = Breaker(threshold=0.5, minimum=4, window=60, open_for=60)


def claim(world, n=10, *, consumer="w", reports=False, suspect=""):
    return world.run(ops.claim_limited(KEYS, consumer, 15.0, n, ROOM, reports, suspect))


def counted(world, *consumers):
    """Count what these consumers hold, as the first claim does after `concurrency` was set."""
    assert world.run(ops.tally(KEYS, consumers, "counter", begins=True, ends=True))


def holders(world):
    return {name: int(count) for name, count in world.run(ops.read_hash(KEYS.holders)).items() if name != "!"}


def moved_back(world, **seconds):
    """Let so much time pass for these fields."""
    for field, by in seconds.items():
        before = float(world.redis.hget(KEYS.flow, field))
        world.redis.hset(KEYS.flow, field, f"{before - by * 1000:.6f}")


@pytest.mark.parametrize("step", ["claim", "settle"])
def test_a_plain_claim_takes_nothing_from_a_queue_with_limits(world, step):
    world.given(messages="a", leases={"w": 1000}, config={"rate": "1/h", "limited": 1})
    before = world.state()
    op = ops.claim(KEYS, "w", 15.0, 5) if step == "claim" else ops.settle(KEYS, "w", 15.0, (), (), 5)
    assert world.run(op).status == "limited"
    assert world.state() == before


def test_a_rate_gives_out_its_burst_and_says_when_there_is_more(world):
    world.given(messages="d c b a", leases={"w": 1000}, config={"rate": "1/h", "burst": 3, "limited": 1})
    answer = claim(world)
    assert (answer.status, answer.reason, len(answer.elements)) == ("limited", "rate", 3)
    assert 3599 < answer.wait <= 3600
    assert world.state()["messages"] == "d"
    assert world.state()["processing:w"] == "c b a"
    assert world.state()["counters"] == {"claimed": 3}
    answer = claim(world)
    assert (answer.reason, answer.elements) == ("rate", [])
    moved_back(world, full_at=3600)
    assert len(claim(world).elements) == 1


def test_a_bucket_is_never_fuller_than_its_burst(world):
    world.given(messages="f e d c b a", leases={"w": 1000}, config={"rate": "1/h", "burst": 2, "limited": 1})
    assert len(claim(world).elements) == 2
    moved_back(world, full_at=100 * 3600)
    assert len(claim(world).elements) == 2


def test_without_a_burst_the_bucket_has_what_a_tenth_of_a_second_brings(world):
    world.given(leases={"w": 1000}, config={"rate": "1000/s", "limited": 1})
    world.redis.rpush(KEYS.messages, *[b"x%d" % number for number in range(500)])
    assert len(claim(world, 1000).elements) == 100


def test_what_was_not_there_to_take_costs_no_token(world):
    world.given(messages="a", leases={"w": 1000}, config={"rate": "1/h", "burst": 2, "limited": 1})
    answer = claim(world)
    assert (answer.reason, answer.wait, len(answer.elements)) == ("", 0, 1)
    world.given(messages="c b")
    assert len(claim(world).elements) == 1


def test_a_high_rate_is_not_asked_for_each_token(world):
    """A token comes each 0.1 ms, and no consumer is told to come back for one."""
    world.given(leases={"w": 1000}, config={"rate": "10000/s", "burst": 1000, "limited": 1})
    world.redis.rpush(KEYS.messages, *[b"x%d" % number for number in range(2000)])
    assert len(claim(world, 1000).elements) == 1000
    answer = claim(world, 1000)
    assert answer.wait >= 0.005 or len(answer.elements) >= 5


def test_concurrency_counts_the_messages_of_all_consumers(world):
    world.given(
        messages="z y x",
        processing={"v": "b a"},
        leases={"v": 1000, "w": 1000},
        config={"concurrency": 3, "limited": 1},
    )
    counted(world, "v", "w")
    answer = claim(world)
    assert (answer.status, answer.reason, answer.wait, len(answer.elements)) == ("limited", "concurrency", 0, 1)
    assert claim(world).elements == []
    world.run(ops.settle(KEYS, "v", 15.0, [world.redis.lindex(KEYS.processing("v"), -1)]))
    assert len(claim(world).elements) == 1
    assert holders(world) == {"v": 1, "w": 2, "#": 3}


def test_where_nobody_has_counted_a_claim_gets_nothing(world):
    world.given(
        messages="x", processing={"v": "a"}, leases={"v": 1000, "w": 10}, config={"concurrency": 3, "limited": 1}
    )
    before = world.state()
    assert claim(world).status == "uncounted"
    assert world.state() == before


def test_all_consumers_are_counted_in_parts_by_one_of_them(world):
    world.given(
        messages="x", processing={"v": "b a", "w": "c"}, leases={"w": 1000}, config={"concurrency": 3, "limited": 1}
    )

    def count(consumer, counter, begins=False, ends=False):
        return world.run(ops.tally(KEYS, [consumer], counter, begins, ends))

    assert count("v", "one", begins=True)
    assert not count("v", "two", begins=True)  # another one counts
    assert not count("w", "two", ends=True)
    assert claim(world).status == "uncounted"
    assert count("w", "one", ends=True)
    assert not count("w", "two", begins=True)  # all are counted
    assert claim(world).reason == "concurrency"
    assert holders(world) == {"v": 2, "w": 1, "#": 3}


def test_who_ends_while_it_counts_is_followed_by_another(world):
    world.given(processing={"v": "b a"}, config={"concurrency": 3, "limited": 1})
    assert world.run(ops.tally(KEYS, [], "one", begins=True, ends=False))
    world.redis.hset(KEYS.holders, "!", f"one {world.now - 6000}")
    assert world.run(ops.tally(KEYS, ["v"], "two", begins=True, ends=False))
    assert not world.run(ops.tally(KEYS, ["v"], "one", begins=False, ends=True))


def test_a_limit_that_is_set_anew_is_counted_anew(world):
    world.given(messages="x", processing={"v": "b a"}, leases={"w": 1000}, config={"concurrency": 3, "limited": 1})
    assert world.run(ops.tally(KEYS, [], "one", begins=True, ends=False))
    for change in ops.configure(KEYS, {"concurrency": 2}, []):
        world.run(change)
    assert not world.run(ops.tally(KEYS, ["v"], "one", begins=False, ends=True))
    assert claim(world).status == "uncounted"
    counted(world, "v")
    assert claim(world).reason == "concurrency"


def test_a_full_queue_suspects_a_consumer_and_puts_right_what_is_known_of_it(world):
    """Another program has deleted its list: what it held would count for ever."""
    world.given(messages="x", leases={"w": 1000}, config={"concurrency": 1, "limited": 1})
    counted(world)
    world.redis.hset(KEYS.holders, mapping={"gone": 1, "#": 1})
    suspects = {claim(world).suspect for _ in range(50)}
    assert suspects == {"", "gone"}
    assert len(claim(world, suspect="gone").elements) == 1
    assert holders(world) == {"w": 1, "#": 1}


def test_what_a_worker_of_an_earlier_version_claims_is_counted_soon(world):
    """Its claims and settlements write no number: each claim of another worker looks at one consumer."""
    world.given(messages="x", processing={"old": "a b"}, leases={"w": 1000}, config={"concurrency": 2, "limited": 1})
    world.redis.sadd(KEYS.consumers, "old")
    counted(world)
    suspects = [claim(world, 0).suspect for _ in range(50)]
    assert {*suspects} == {"old", "w"}
    assert claim(world, suspect="old").reason == "concurrency"
    assert holders(world) == {"old": 2, "#": 2}
    world.redis.delete(KEYS.processing("old"))
    world.redis.srem(KEYS.consumers, "old")
    suspects = [claim(world).suspect for _ in range(50)]
    assert {*suspects} == {"old", ""}
    assert len(claim(world, suspect="old").elements) == 1
    assert holders(world) == {"w": 1, "#": 1}


def test_a_free_slot_is_told_to_those_who_wait_for_one(world):
    world.given(messages="c b a", leases={"w": 1000}, config={"concurrency": 3, "limited": 1})
    counted(world)
    assert len(claim(world, 1).elements) == 1
    assert world.state()["freed"] == "1"
    assert len(claim(world, 1).elements) == 1
    assert world.state()["freed"] == "1"  # one entry is enough: who finds it passes the rest on


@pytest.mark.parametrize(("next_limit", "told"), [(0, True), (ops.CLAIMS_NEXT, False)])
def test_a_settlement_tells_of_the_slot_that_it_frees_unless_it_takes_that_itself(world, next_limit, told):
    world.given(processing={"w": "b a"}, leases={"w": 1000}, config={"concurrency": 2, "limited": 1})
    counted(world, "w")
    element = world.redis.lindex(KEYS.processing("w"), -1)
    world.run(ops.settle(KEYS, "w", 15.0, [element], (), next_limit, row=1))
    assert world.redis.exists(KEYS.freed) == told
    world.run(ops.settle(KEYS, "w", 15.0, [world.redis.lindex(KEYS.processing("w"), -1)]))
    assert world.redis.llen(KEYS.freed) == told  # the queue was not full
    assert holders(world) == {"#": 0}


def test_one_consumer_waits_for_messages_and_the_others_to_be_told(world):
    world.given(leases={"v": 1000, "w": 1000}, config={"rate": "100/s", "limited": 1})
    assert world.run(ops.lead(KEYS, "w", 2.0))
    assert world.run(ops.lead(KEYS, "w", 2.0))
    assert not world.run(ops.lead(KEYS, "v", 2.0))
    world.given(messages="a")
    assert len(claim(world).elements) == 1
    assert world.state()["freed"] == "1"  # now another one waits for messages
    assert world.run(ops.lead(KEYS, "v", 2.0))
    moved_back(world, waiter_until=3)
    assert world.run(ops.lead(KEYS, "w", 2.0))  # the other one has ended


def test_who_gets_messages_tells_no_other_one_while_one_waits_for_more(world):
    world.given(messages="a", leases={"w": 1000}, config={"rate": "100/s", "limited": 1})
    assert world.run(ops.lead(KEYS, "v", 2.0))
    assert len(claim(world).elements) == 1
    assert not world.redis.exists(KEYS.freed)
    assert not world.run(ops.lead(KEYS, "w", 2.0))


def test_a_held_queue_gives_nothing_until_its_end(world):
    world.given(messages="a", leases={"w": 1000})
    world.run(ops.hold(KEYS, 30.0))
    world.run(ops.hold(KEYS, 10.0))  # the later end counts
    answer = claim(world)
    assert (answer.reason, answer.elements) == ("held", [])
    assert 29 < answer.wait <= 30
    moved_back(world, held_until=31)
    answer = claim(world)
    assert (answer.status, len(answer.elements)) == ("ok", 1)
    assert "config" not in world.state()
    assert "flow" not in world.state()


def test_a_queue_whose_limits_were_reset_is_a_plain_one_again(world):
    world.given(messages="b a", leases={"w": 1000}, config={"limited": 1})
    assert claim(world, 1).status == "ok"
    assert world.run(ops.claim(KEYS, "w", 15.0, 1)).status == "ok"


def test_a_paused_queue_and_a_lost_lease_come_before_limits(world):
    world.given(messages="a", leases={"w": 1000}, config={"rate": "1/h", "limited": 1, "paused": 1})
    assert claim(world).status == "paused"
    assert claim(world, consumer="gone").status == "lost"
    assert world.state()["messages"] == "a"


def run(world, passed, failed, probe=""):
    return world.run(ops.breaker(KEYS, RULE, passed, failed, probe))


def test_a_breaker_opens_at_its_threshold_and_not_before_its_minimum(world):
    assert run(world, 0, 3) == ("closed", "closed")
    assert run(world, 4, 0) == ("closed", "closed")
    assert run(world, 0, 1) == ("closed", "open")
    state = world.redis.hgetall(KEYS.flow)
    assert state[b"breaker"] == b"open"
    assert world.state()["counters"] == {"breaker_opened": 1}
    assert 59_000 < int(state[b"breaker_until"]) - time.time() * 1000 <= 60_000


def test_runs_of_another_window_do_not_count(world):
    run(world, 0, 3)
    moved_back(world, breaker_since=61)
    assert run(world, 0, 3) == ("closed", "closed")
    assert run(world, 0, 1) == ("closed", "open")


def test_an_open_breaker_gives_one_probe_and_closes_with_it(world):
    world.given(messages="c b a", leases={"w": 1000})
    run(world, 0, 4)
    answer = claim(world, reports=True)
    assert (answer.reason, answer.elements) == ("breaker", [])
    moved_back(world, breaker_until=61)
    answer = claim(world, reports=True)
    assert (answer.reason, len(answer.elements)) == ("probe", 1)
    assert claim(world, reports=True).reason == "breaker"  # one probe, until it has ended
    assert run(world, 9, 9) == ("half_open", "half_open")  # these began before it opened
    assert run(world, 1, 0, "passed") == ("half_open", "closed")
    assert len(claim(world, reports=True).elements) == 2
    assert "flow" not in world.state()


def test_a_failed_probe_opens_it_for_as_long_again(world):
    world.given(messages="b a", leases={"w": 1000})
    run(world, 0, 4)
    moved_back(world, breaker_until=61)
    claim(world, reports=True)
    assert run(world, 0, 1, "failed") == ("half_open", "open")
    answer = claim(world, reports=True)
    assert (answer.reason, answer.elements) == ("breaker", [])
    assert 59 < answer.wait <= 60


def test_a_probe_whose_handler_did_not_run_is_followed_by_another_at_once(world):
    world.given(messages="b a", leases={"w": 1000})
    run(world, 0, 4)
    moved_back(world, breaker_until=61)
    assert claim(world, reports=True).reason == "probe"
    assert run(world, 0, 0, "untried") == ("half_open", "half_open")
    assert claim(world, reports=True).reason == "probe"
    assert claim(world, reports=True).reason == "breaker"
    assert run(world, 1, 0, "passed") == ("half_open", "closed")
    assert run(world, 0, 0, "untried") == ("closed", "closed")


def test_a_probe_that_takes_long_is_followed_by_another_only_when_its_consumer_is_gone(world):
    world.given(messages="c b a", leases={"w": 1000, "other": 1000})
    run(world, 0, 4)
    moved_back(world, breaker_until=61)
    assert len(claim(world, reports=True).elements) == 1
    moved_back(world, breaker_until=61)
    answer = claim(world, reports=True)
    assert (answer.reason, answer.wait, answer.elements) == ("breaker", 1.0, [])

    def of_other(suspect):
        claimed = claim(world, consumer="other", reports=True, suspect=suspect)
        return claimed.reason, len(claimed.elements), claimed.suspect

    assert of_other("") == ("breaker", 0, "w")  # it does not know yet whose list to look at
    assert of_other("w") == ("breaker", 0, "w")
    world.redis.delete(KEYS.processing("w"))  # a monitor has taken it back
    assert of_other("w")[:2] == ("probe", 1)
    assert world.redis.hget(KEYS.flow, "prober") == b"other"
    assert run(world, 1, 0, "passed") == ("half_open", "closed")
    assert not world.redis.hexists(KEYS.flow, "prober")


def test_an_empty_queue_keeps_its_probe_for_the_next_message(world):
    world.given(leases={"w": 1000})
    run(world, 0, 4)
    moved_back(world, breaker_until=61)
    answer = claim(world, reports=True)
    assert (answer.reason, answer.wait) == ("", 0)
    world.given(messages="a")
    assert claim(world, reports=True).reason == "probe"


def test_a_consumer_that_reports_nothing_closes_a_breaker_whose_time_is_over(world):
    """Else a queue whose handler has no breaker any more would give out one message a period for ever."""
    world.given(messages="b a", leases={"w": 1000})
    run(world, 0, 4)
    assert claim(world).elements == []
    moved_back(world, breaker_until=61)
    answer = claim(world)
    assert (answer.status, len(answer.elements)) == ("ok", 2)


def test_a_breaker_is_opened_and_closed_by_hand(world):
    world.given(messages="a", leases={"w": 1000})
    assert world.run(ops.switch_breaker(KEYS, 3600.0)) == "closed"
    assert claim(world, reports=True).reason == "breaker"
    assert world.run(ops.switch_breaker(KEYS, 0)) == "open"
    assert len(claim(world, reports=True).elements) == 1


@pytest.mark.parametrize(
    "op",
    [ops.hold(KEYS, 1.0), ops.switch_breaker(KEYS, 1.0), ops.breaker(KEYS, RULE, 0, 9, "")],
    ids=["hold", "switch", "breaker"],
)
def test_a_full_redis_refuses_no_step_of_the_limits(world, op):
    world.fill()
    world.run(op)
    assert world.redis.hget(KEYS.config, "limited") == b"1"


def test_a_full_redis_still_gives_messages_within_limits(world):
    world.given(messages="b a", leases={"w": 1000}, config={"rate": "1/h", "concurrency": 2, "limited": 1})
    world.fill()
    assert claim(world).status == "uncounted"
    counted(world, "w")
    assert len(claim(world).elements) == 1


def test_waiting_for_messages_changes_nothing(world):
    world.given(messages="b a")
    before = world.state()
    world.run(ops.wait_for_messages(KEYS, 1.0))
    assert world.state() == before
    world.redis.delete(KEYS.messages)
    world.run(ops.wait_for_messages(KEYS, 0.01))
