"""A rate that is changed, of a queue or of its keys: what its buckets lack then."""

import pytest

from reliq import ops
from reliq.model.element import limit_group_of
from tests.support.state import KEYS

HOUR = 3_600_000
T, U = limit_group_of("t"), limit_group_of("u")


def by_policy(world, before, after):
    for op in ops.configure(KEYS, after, [name for name in before if name not in after]):
        world.run(op)


def by_exchange(world, before, after):
    changes = {**dict.fromkeys(before), **after}
    assert world.run(ops.exchange_policy(KEYS, before, changes))


change = pytest.mark.parametrize("change", [by_policy, by_exchange])


def lacks_ms(world, group=None):
    found = world.redis.zscore(KEYS.buckets, group) if group else world.redis.hget(KEYS.flow, "full_at")
    return float(found) - world.now


@change
@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ("1/h", "3600/h", 2000), ("1/h", "100/s", 20), ("24/d", "1/m", 120_000),  # the same two tokens
        ("100/s", "1/h", 2 * HOUR), ("1/h", "1/h", 2 * HOUR), ("1/h", "24/d", 2 * HOUR),  # not later than before
        (None, "1/h", 0), ("what?", "1/h", 0),  # of an earlier rate, or of none that is known
    ],
)  # fmt: skip
def test_what_a_bucket_lacks_comes_at_the_new_rate(world, change, before, after, left):
    for name in "rate", "key_rate":
        world.given(config={} if before is None else {name: before})
        world.redis.hset(KEYS.flow, "full_at", world.now + 2 * HOUR)
        world.redis.zadd(KEYS.buckets, {T: world.now + 2 * HOUR, U: 1, "!" + T: world.now + HOUR})
        change(world, {} if before is None else {name: before}, {name: after})
        group, other = (None, T) if name == "rate" else (T, None)
        assert lacks_ms(world, group) == pytest.approx(left, abs=1500)
        assert lacks_ms(world, other) == pytest.approx(2 * HOUR, abs=1)
        assert lacks_ms(world, "!" + T) == pytest.approx(HOUR, abs=1)  # a hold stays
        assert world.redis.zscore(KEYS.buckets, U) == 1


@change
def test_a_change_of_other_settings_leaves_the_buckets_as_they_are(world, change):
    world.given(config={"rate": "1/h", "burst": 2})
    world.redis.hset(KEYS.flow, "full_at", world.now + HOUR)
    change(world, {"burst": "2"}, {"burst": 9, "max_length": 5})
    assert lacks_ms(world) == HOUR
