import pytest

from reliq_api.ui.charts import chart, round_up
from reliq_api.ui.render import ago, compact, duration, rate, utc


def test_a_line_runs_from_its_place_in_time_to_the_right_edge():
    drawn = chart([90.0, 95.0, 100.0], {"in": [0, 2, 4]}, span=20, now=100)
    assert drawn.top == 4
    assert drawn.lines[0].path == "M150.0 100.0L225.0 50.0L300.0 0.0"
    assert drawn.lines[0].area == "M150.0 100.0L225.0 50.0L300.0 0.0L300.0 100L150.0 100Z"


def test_what_is_older_than_the_span_is_not_drawn():
    drawn = chart([0.0, 90.0, 100.0], {"in": [9, 1, 1]}, span=20, now=100)
    assert drawn.lines[0].path.startswith("M150.0")


def test_the_lines_of_a_plot_share_their_scale():
    drawn = chart([0.0, 1.0], {"ready": [0, 80], "dead": [0, 8]}, span=1, now=1)
    assert drawn.top == 80
    assert drawn.lines[1].path.endswith("L300.0 90.0")


def test_less_than_two_points_draw_nothing():
    assert chart([], {"in": []}, span=1, now=1).empty
    assert chart([1.0], {"in": [5]}, span=1, now=1).empty


@pytest.mark.parametrize(("value", "top"), [(0, 1), (1, 1), (1.2, 1.5), (68, 80), (100, 100), (101, 150), (9e6, 1e7)])
def test_the_scale_ends_at_a_round_number(value, top):
    assert round_up(value) == top


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (123_456, "123k"), (4_560_000, "4.56M"), (7e12, "7000G")],
)
def test_large_numbers_are_short(value, text):
    assert compact(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.25, "0.2"), (5.0, "5"), (42.6, "43")])
def test_slow_rates_have_a_decimal(value, text):
    assert rate(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.4, "<1 s"), (45, "45 s"), (200, "3 min 20 s"), (7200, "2 h"), (86_460, "1 d"), (93_600, "1 d 2 h")],
)
def test_durations_have_at_most_two_units(seconds, text):
    assert duration(seconds) == text


def test_times_that_a_stranger_made_up_are_no_error():
    assert utc(2**63) == "an impossible time"
    assert ago(2**63) == "0 s ago"
