"""register, claim, heartbeat, forget: a consumer's life."""

import pytest

from reliq import ops
from reliq.errors import RedisUnsuitable
from tests.support.state import HOUR, KEYS, elements


def test_register_comes_before_anything_can_be_held(world):
    world.run(ops.register(KEYS, "c", 15.0))
    assert world.state() == {"consumers": {"c"}, "lease:c": "alive"}
    deadline = int(world.redis.get(KEYS.lease("c")))
    assert world.now + 15_000 <= deadline < world.now + 16_000


def test_claim_takes_the_oldest_and_keeps_their_order(world):
    world.given(messages="e d c b a", leases={"w": 1000})
    answer = world.run(ops.claim(KEYS, "w", 15.0, 3))
    assert (answer.status, len(answer.elements)) == ("ok", 3)
    assert world.state() == {
        "messages": "e d",
        "processing:w": "c b a",
        "lease:w": "alive",
        "consumers": {"w"},
        "counters": {"claimed": 3},
    }


def test_claim_twice_puts_the_newer_above_the_older(world):
    world.given(messages="b a", leases={"w": 1000})
    world.run(ops.claim(KEYS, "w", 15.0, 1))
    world.run(ops.claim(KEYS, "w", 15.0, 1))
    assert world.state()["processing:w"] == "b a"


def test_claim_renews_the_lease_even_when_there_is_nothing(world):
    world.given(leases={"w": 10})
    assert world.run(ops.claim(KEYS, "w", 15.0, 5)).elements == []
    assert int(world.redis.get(KEYS.lease("w"))) >= world.now + 15_000


def test_claim_leaves_the_lease_if_it_was_just_renewed(world):
    world.given(messages="a", leases={"w": 10})
    lease = world.redis.get(KEYS.lease("w"))
    assert len(world.run(ops.claim(KEYS, "w", 0, 5)).elements) == 1
    assert world.redis.get(KEYS.lease("w")) == lease


def test_a_paused_queue_gives_nothing(world):
    world.given(messages="a", leases={"w": 1000}, config={"paused": 1})
    before = world.state()
    assert world.run(ops.claim(KEYS, "w", 15.0, 5)).status == "paused"
    assert world.state() == before


def test_a_lost_lease_claims_nothing(world):
    world.given(messages="a")
    before = world.state()
    assert world.run(ops.claim(KEYS, "w", 15.0, 5)).status == "lost"
    assert world.state() == before


@pytest.mark.parametrize("lease", [15.0, 0], ids=["renewed", "left"])
def test_a_full_redis_still_gives_its_messages(world, lease):
    world.given(messages="b a", leases={"w": 1000})
    world.fill()
    assert len(world.run(ops.claim(KEYS, "w", lease, 5)).elements) == 2
    assert world.state()["processing:w"] == "b a"


def test_a_processing_key_of_another_type_loses_nothing(world):
    world.given(messages="a", leases={"w": 1000})
    world.redis.set(KEYS.processing("w"), "somebody else's")
    with pytest.raises(RedisUnsuitable, match="another type"):
        world.run(ops.claim(KEYS, "w", 15.0, 5))
    assert world.state()["messages"] == "a"


def test_heartbeat_renews_what_is_there_and_revives_nothing(world):
    world.given(leases={"w": 10})
    assert world.run(ops.heartbeat(KEYS, "w", 15.0)) is True
    assert int(world.redis.get(KEYS.lease("w"))) >= world.now + 15_000
    assert world.run(ops.heartbeat(KEYS, "gone", 15.0)) is False
    assert "lease:gone" not in world.state()


def test_forget_ends_an_empty_consumer_whose_lease_is_over(world):
    world.given(leases={"over": -1, "alive": HOUR}, processing={"holds": "a"})
    assert [world.run(ops.forget(KEYS, one)) for one in ("over", "alive", "holds")] == [True, False, False]
    assert world.state() == {"consumers": {"alive", "holds"}, "lease:alive": "alive", "processing:holds": "a"}


def test_a_consumer_that_leaves_is_forgotten_unless_it_still_holds(world):
    world.given(leases={"w": HOUR, "holds": HOUR}, processing={"holds": "a"})
    assert [world.run(ops.forget(KEYS, one, leaving=True)) for one in ("w", "holds")] == [True, False]
    assert world.state()["consumers"] == {"holds"}


def test_a_consumer_can_start_live_and_leave_when_redis_is_full(world):
    world.given(messages="a")
    world.fill()
    world.run(ops.announce("q"))
    world.run(ops.register(KEYS, "w", 15.0))
    assert world.run(ops.heartbeat(KEYS, "w", 15.0)) is True
    assert len(world.run(ops.claim(KEYS, "w", 15.0, 5)).elements) == 1
    assert world.run(ops.settle(KEYS, "w", 15.0, [])).status == "ok"
    world.run(ops.settle(KEYS, "w", 15.0, elements("a")))
    assert world.run(ops.forget(KEYS, "w", leaving=True)) is True
    assert world.state() == {"counters": {"claimed": 1, "acked": 1}}


def test_a_consumer_says_who_it_is_until_it_leaves(world):
    world.run(ops.register(KEYS, "w", 15.0, about=b"{}"))
    world.run(ops.register(KEYS, "earlier", 15.0))  # a worker of an earlier version says nothing
    assert world.redis.hgetall(KEYS.workers) == {b"w": b"{}"}
    assert world.run(ops.describe(KEYS, "w", b'{"running": "a"}')) == 1
    assert world.redis.hgetall(KEYS.workers) == {b"w": b'{"running": "a"}'}
    assert world.run(ops.forget(KEYS, "w", leaving=True)) is True
    assert not world.redis.exists(KEYS.workers)


def test_a_heartbeat_that_is_late_says_nothing_of_a_consumer_that_has_left(world):
    """Its thread asks for the news once the lease is renewed; the consumer may leave in between."""
    world.run(ops.register(KEYS, "w", 15.0, about=b"{}"))
    assert world.run(ops.forget(KEYS, "w", leaving=True)) is True
    assert world.run(ops.describe(KEYS, "w", b"{}")) == 0
    assert not world.redis.exists(KEYS.workers)


def test_announce_enters_a_queue_once(world):
    assert [world.run(ops.announce("q")) for _ in range(2)] == [1, 0]
    assert world.redis.smembers("reliq:queues") == {b"q"}


def test_what_a_late_blmove_moved_to_an_ended_consumer_is_found_by_the_monitor(world):
    """Stopped between its last claim and its BLMOVE for longer than its lease, and forgotten meanwhile."""
    world.given(messages="b a")
    moved, answer = world.store.call([ops.block(KEYS, "w", 0.1), ops.claim(KEYS, "w", 15.0, 5)])
    assert (moved, answer.status) == (elements("a")[0], "lost")
    assert world.state() == {"messages": "b", "processing:w": "a", "consumers": {"w"}}
