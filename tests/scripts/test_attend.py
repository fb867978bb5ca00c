"""attend: the monitors that share the queues of a server."""

import pytest

from reliq import ops
from reliq.model.keys import monitors_since, monitors_until
from reliq.ops import Attendance

UNTIL, SINCE = monitors_until("0"), monitors_since("0")


@pytest.fixture
def attend(world):
    def attend(monitor, lasts=30.0, most=8):
        return world.run(ops.attend("0", monitor, lasts, most))

    return attend


def ages(world, **monitors):
    """Monitors by the seconds for which they still count, in the order in which they came."""
    for place, (name, seconds) in enumerate(monitors.items()):
        world.redis.zadd(UNTIL, {name: world.now + seconds * 1000})
        world.redis.zadd(SINCE, {name: place})


def test_each_is_known_from_its_first_beat_on(attend):
    assert attend("a") == Attendance(new=True, alive=1, leading=("a",))
    assert attend("a") == Attendance(new=False, alive=1, leading=("a",))


def test_monitors_that_came_first_lead_and_the_others_are_spares(world, attend):
    ages(world, a=60, b=60)
    assert attend("c", most=2) == Attendance(new=True, alive=3, leading=("a", "b"))
    assert attend("c", most=2) == Attendance(new=False, alive=3, leading=("a", "b"))
    assert attend("a", most=2) == Attendance(new=False, alive=3, leading=("a", "b"))


def test_one_without_a_beat_is_gone_and_a_spare_takes_its_place(world, attend):
    ages(world, a=-1, b=60, c=60)
    assert attend("b", most=2) == Attendance(new=False, alive=2, leading=("b", "c"))
    assert world.redis.zscore(SINCE, "a") is None


def test_one_that_was_taken_for_gone_comes_back_last(world, attend):
    ages(world, a=-1, b=60)
    assert attend("a") == Attendance(new=True, alive=2, leading=("b", "a"))


def test_a_monitor_that_resigns_is_gone_at_once(world, attend):
    ages(world, a=60, b=60)
    world.store.call(ops.resign("0", "a"))
    assert attend("b") == Attendance(new=False, alive=1, leading=("b",))


def test_presence_noted_before_the_clock_was_set_back_does_not_outlast_the_next_one_that_comes(world, attend):
    ages(world, dead=3600, b=60)
    assert "dead" in attend("b").leading
    assert attend("c") == Attendance(new=True, alive=2, leading=("b", "c"))


@pytest.mark.parametrize("lost", [UNTIL, SINCE])
def test_monitors_lead_again_after_one_of_their_keys_was_deleted(world, attend, lost):
    ages(world, a=60, b=60)
    world.redis.delete(lost)
    attend("a"), attend("b")
    assert {*attend("a").leading, *attend("b").leading} == {"a", "b"}


def test_monitors_attend_when_memory_is_full(world, attend):
    attend("a")
    world.redis.config_set("maxmemory", 1)
    try:
        assert attend("a").leading == ("a",)
        assert attend("b").leading == ("a", "b")
    finally:
        world.redis.config_set("maxmemory", 0)
