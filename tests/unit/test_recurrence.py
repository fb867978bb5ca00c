"""When a schedule ticks: cron expressions, also when the clocks change, and intervals."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliq.errors import InvalidSetting
from reliq.features.schedules.recurrence import (
    Cron,
    Interval,
    milliseconds_of,
    moment_of,
    recurrence,
    stored_recurrence,
    text_of,
)

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3_600_000


def ms(year, month, day, hour=0, minute=0, zone=BERLIN, fold=0):
    return milliseconds_of(datetime(year, month, day, hour, minute, tzinfo=zone, fold=fold))


def following(cron, moment) -> int:
    """The first tick after a moment; there is one."""
    tick = cron.after(moment)
    assert tick is not None
    return tick


def ticks(expression, start, count, zone="Europe/Berlin"):
    """The ticks after `start`, as local times with their offset."""
    cron, found, tick = Cron(expression, zone), [], start
    for _ in range(count):
        tick = following(cron, tick)
        found.append(moment_of(tick, ZoneInfo(zone)).isoformat(timespec="minutes")[5:])
    return found


def test_a_daily_tick_that_the_spring_skips_comes_right_after_the_gap():
    assert ticks("30 2 * * *", ms(2026, 3, 28, 1), 3) == [
        "03-28T02:30+01:00", "03-29T03:00+02:00", "03-30T02:30+02:00",
    ]  # fmt: skip


def test_a_daily_tick_that_the_autumn_repeats_comes_once():
    assert ticks("30 2 * * *", ms(2026, 10, 24, 1), 3) == [
        "10-24T02:30+02:00", "10-25T02:30+02:00", "10-26T02:30+01:00",
    ]  # fmt: skip


def test_hourly_ticks_follow_the_real_time_through_both_changes():
    assert ticks("0 * * * *", ms(2026, 3, 29, 0, 30), 4) == [
        "03-29T01:00+01:00", "03-29T03:00+02:00", "03-29T04:00+02:00", "03-29T05:00+02:00",
    ]  # fmt: skip
    assert ticks("0 * * * *", ms(2026, 10, 25, 0, 30), 5) == [
        "10-25T01:00+02:00", "10-25T02:00+02:00", "10-25T02:00+01:00", "10-25T03:00+01:00", "10-25T04:00+01:00",
    ]  # fmt: skip


def test_no_tick_is_in_the_past_of_the_repeated_hour():
    second_0215 = ms(2026, 10, 25, 2, 15, fold=1)
    assert ticks("30 2 * * *", second_0215, 1) == ["10-26T02:30+01:00"]


def test_an_interval_ignores_clocks_that_change():
    found = [following(Interval(HOUR), ms(2026, 10, 25, 0) + hours * HOUR) for hours in range(5)]
    assert {later - earlier for earlier, later in pairwise(found)} == {HOUR}


EXPRESSIONS = ("30 2 * * *", "0 * * * *", "*/20 * * * *", "15 1,2,3 * * *", "0 2-4 * * SUN", "59 */2 * * *")
CHANGES = (ms(2026, 3, 29, 0), ms(2026, 10, 25, 0))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(CHANGES), st.integers(0, 8 * HOUR))
def test_every_process_finds_the_same_ticks_from_wherever_it_looks(expression, change, offset):
    cron = Cron(expression, "Europe/Berlin")
    all_ticks: list[int] = []
    tick = change - 48 * HOUR
    while tick < change + 80 * HOUR:
        tick = following(cron, tick)
        all_ticks.append(tick)
    moment = change + offset
    assert cron.after(moment) == next(one for one in all_ticks if one > moment)
    backwards = list(takewhile(lambda one: one >= all_ticks[0], cron.until(moment)))
    assert backwards == [one for one in reversed(all_ticks) if one <= moment]


def test_intervals_count_from_the_epoch_or_from_a_start():
    assert Interval(30_000).after(29_999) == 30_000
    assert Interval(30_000).after(30_000) == 60_000
    assert Interval(30_000, origin=7_000).after(30_000) == 37_000
    assert [*zip(Interval(10, 3).until(25), range(3), strict=False)] == [(23, 0), (13, 1), (3, 2)]


def test_an_interval_is_a_text_a_number_or_a_timedelta():
    assert recurrence("1.5m", "UTC") == recurrence(90, "UTC") == recurrence(timedelta(seconds=90), "UTC")
    assert stored_recurrence("90s", "UTC") == Interval(90_000)


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "5 4 31 4,6 *"])
def test_a_cron_expression_that_never_fires_is_refused(expression):
    with pytest.raises(InvalidSetting, match="never fires") as refused:
        recurrence(expression, "UTC")
    assert repr(expression) in str(refused.value)


def test_a_leap_day_fires():
    assert text_of(following(recurrence("0 0 29 2 *", "UTC"), ms(2026, 3, 1, zone=UTC))) == "2028-02-29T00:00:00Z"


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("61 * * * *", "'61 \\* \\* \\* \\*' is wrong: Bad minute"),
        ("* * * *", "has 4 fields"),
        ("0 0 12 * * *", "has 6 fields"),
        ("a b c d e", "Bad minute"),
        ("*/0 * * * *", "Bad minute"),
        ("0 0 32 1 *", "Bad day-of-month"),
        ("30 parsecs", "'30 parsecs'"),
        ("-5s", "'-5s'"),
        ("", "''"),
        ("0s", "an interval of 1 s or more"),
        (0.5, "0.5"),
        (float("nan"), "nan"),
        (None, "None"),
        (True, "True"),
        ("9999d", "'9999d'"),
    ],
)
def test_what_is_neither_cron_nor_interval_is_refused_with_its_value(when, why):
    with pytest.raises(InvalidSetting, match=why):
        recurrence(when, "UTC")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe/", "Berlin"])
def test_an_unknown_time_zone_is_refused_with_its_name(zone):
    with pytest.raises(InvalidSetting, match="time zone") as refused:
        recurrence("0 * * * *", zone)
    assert repr(zone) in str(refused.value)
