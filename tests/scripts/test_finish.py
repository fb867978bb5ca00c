"""finish: a lease over HTTP ends when nothing is left in it, and never sooner."""

import pytest

from reliq import ops
from tests.support.state import HOUR, KEYS


def finish(world):
    return world.run(ops.forget(KEYS, "h", leaving=True, settled_for=60.0))


def test_a_lease_that_holds_nothing_ends_and_is_remembered(world):
    world.given(leases={"h": HOUR})
    assert finish(world) is True
    assert world.state() == {"settled:h": b"1"}
    assert 0 < world.redis.pttl(KEYS.settled("h")) <= 60_000


def test_a_lease_that_holds_something_goes_on(world):
    world.given(processing={"h": "a"}, leases={"h": HOUR})
    before = world.state()
    assert finish(world) is False
    assert world.state() == before


def test_a_lease_that_was_lost_is_not_remembered_as_settled(world):
    world.given(processing={"h": ""})
    assert finish(world) is True
    assert world.state() == {}


@pytest.mark.parametrize("limit", [0, 1])
def test_after_it_a_late_claim_moves_nothing_and_a_late_blmove_is_seen(world, limit):
    world.given(messages="b a", leases={"h": HOUR})
    finish(world)
    if limit:
        world.run(ops.block(KEYS, "h", 0.01))
    assert world.run(ops.claim(KEYS, "h", 15.0, 5)).status == "lost"
    assert world.state().get("consumers", set()) == ({"h"} if limit else set())


def test_a_lease_is_finished_when_memory_is_full(world):
    world.given(leases={"h": HOUR})
    world.fill()
    assert finish(world) is True
    assert world.state() == {"settled:h": b"1"}
