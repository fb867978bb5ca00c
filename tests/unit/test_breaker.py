"""The bounds of a breaker's values: those within are kept as seconds, those outside are refused."""

import pytest

import reliq
from reliq.errors import InvalidSetting
from reliq.model.breaker import Breaker

DAY = 86_400.0


@pytest.mark.parametrize("name", ["window", "open_for"])
@pytest.mark.parametrize(("value", "is_kept"), [(0.1, 0.1), (DAY, DAY), ("24h", DAY)])
def test_the_shortest_and_the_longest_time_are_kept(name, value, is_kept):
    assert getattr(Breaker(**{name: value}), name) == is_kept


@pytest.mark.parametrize("name", ["window", "open_for"])
@pytest.mark.parametrize("value", [0.09, DAY + 1, "25h", -1, float("inf"), float("nan")])
def test_a_time_outside_says_the_bounds(name, value):
    with pytest.raises(InvalidSetting, match=rf"{name} is .*: it must be between 0\.1 seconds and 1 day"):
        Breaker(**{name: value})


@pytest.mark.parametrize("threshold", [0.001, 1, 1.0])
def test_the_smallest_and_the_largest_part_are_kept(threshold):
    assert Breaker(threshold).threshold == threshold


@pytest.mark.parametrize("threshold", [0, -0.1, 1.001, True, "0.5", None])
def test_a_part_that_is_not_above_0_and_at_most_1_is_refused(threshold):
    with pytest.raises(InvalidSetting, match="must be above 0 and at most 1"):
        Breaker(threshold)


@pytest.mark.parametrize("minimum", [1, 1_000_000])
def test_the_smallest_and_the_largest_number_of_runs_are_kept(minimum):
    assert Breaker(minimum=minimum).minimum == minimum


@pytest.mark.parametrize("minimum", [0, 1_000_001, 1.5, True])
def test_a_number_of_runs_outside_the_bounds_is_refused(minimum):
    with pytest.raises(InvalidSetting, match="minimum is"):
        Breaker(minimum=minimum)


def test_without_values_it_is_what_the_page_says():
    assert reliq.breaker is Breaker
    assert Breaker() == Breaker(threshold=0.5, minimum=20, window="30s", open_for="30s")
    assert (Breaker().window_seconds, Breaker(open_for="1m").open_seconds) == (30.0, 60.0)
