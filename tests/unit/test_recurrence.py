"""When a schedule ticks: cron expressions, also when the clocks change, and intervals."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliq.errors import InvalidSetting
from reliq.features.schedules import recurrence as module
from reliq.features.schedules.recurrence import (
    MOST_COUNTED,
    Cron,
    Interval,
    milliseconds_of,
    moment_of,
    recurrence,
    stored_recurrence,
    text_of,
)

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = 60_000
HOUR = 60 * MINUTE
WEEK = 7 * 24 * HOUR


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
    passed = [one for one in all_ticks if one <= moment]
    if passed:
        assert cron.between(passed[0], moment, 7) == (len(passed), passed[-7:])


def changes():
    """(zone, ms of the change) since 2005: one of each kind of change that is odd, and ordinary ones of a few zones.

    Odd: by other than an hour, or of a clock whose offset is no whole hour. Goose Bay changed at 00:01.
    """
    found = dict[object, tuple[str, int]]()
    weeks = range(ms(2005, 1, 1, zone=UTC), ms(2030, 1, 1, zone=UTC), WEEK)
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        offsets = [moment_of(week, zone).utcoffset() or timedelta() for week in weeks]
        for week, (before, after) in zip(weeks, pairwise(offsets), strict=False):
            odd = abs(after - before) != timedelta(hours=1) or before.seconds % 3600
            if before != after and (odd or name in ("Europe/Berlin", "America/Havana", "America/Goose_Bay")):
                found.setdefault((before, after, odd or name), (name, week))
    for name, week in found.values():
        clock = [moment_of(minute, ZoneInfo(name)).utcoffset() for minute in range(week, week + WEEK, MINUTE)]
        yield name, week + MINUTE * next(at for at, offset in enumerate(clock) if offset != clock[0])


BY_THE_CLOCK = {
    "*/10 */2 * * *": lambda clock: clock.minute % 10 == 0 and clock.hour % 2 == 0,
    "0 */2 * * *": lambda clock: clock.minute == 0 and clock.hour % 2 == 0,
    "45 */3 * * *": lambda clock: clock.minute == 45 and clock.hour % 3 == 0,
    "*/5 3 * * *": lambda clock: clock.minute % 5 == 0 and clock.hour == 3,
    "*/7 0 * * *": lambda clock: clock.minute % 7 == 0 and clock.hour == 0,
}


def test_wherever_clocks_change_the_latest_ticks_are_those_that_come_forward(monkeypatch):
    monkeypatch.setattr(module, "MOST_COUNTED", 5)
    zones = set()
    for zone, change in changes():
        zones.add(zone)
        minutes = range(change - 30 * HOUR, change + 30 * HOUR, MINUTE)
        clock = [(minute, moment_of(minute, ZoneInfo(zone))) for minute in minutes]
        for expression in (*BY_THE_CLOCK, "30 2 * * *", "15 0-4 * * *"):
            cron, forward, tick = Cron(expression, zone), list[int](), minutes[0] - 1
            while (tick := following(cron, tick)) <= minutes[-1]:
                assert not forward or tick > forward[-1], (zone, expression)
                forward.append(tick)
            if expression in BY_THE_CLOCK:
                fits = BY_THE_CLOCK[expression]
                assert forward == [minute for minute, shown in clock if fits(shown)], (zone, expression)
            for moment in (change + 90 * MINUTE + 7, minutes[-1]):
                passed = [one for one in forward if one <= moment]
                found = cron.between(forward[0], moment, 5)
                assert found == (min(5, len(passed)), passed[-5:]), (zone, expression, moment)
    assert len(zones) > 15, zones  # Chatham, Lord Howe, Troll, Casey, Goose Bay ..., by any of their names


@pytest.mark.parametrize(
    ("expression", "zone", "change"),
    [
        ("*/5 3 * * *", "Pacific/Chatham", ms(2026, 4, 4, 14, zone=UTC)),
        ("45 */3 * * *", "Pacific/Chatham", ms(2026, 4, 4, 14, zone=UTC)),
        ("0 */2 * * *", "America/Goose_Bay", ms(2010, 11, 7, 3, 1, zone=UTC)),
    ],
)
def test_a_clock_that_is_put_back_within_an_hour_stops_no_schedule(expression, zone, change):
    cron, tick = Cron(expression, zone), change - 24 * HOUR
    while tick < change + 24 * HOUR:
        tick, before = following(cron, tick), tick
        assert tick > before


@pytest.mark.parametrize("expression", ["* * * * *", "0 */2 * * *", "* * * 1 *"])
def test_of_more_ticks_than_are_counted_the_latest_are_found(expression):
    cron, last = Cron(expression, "Pacific/Chatham"), ms(2026, 12, 31, zone=UTC)
    count, latest = cron.between(following(cron, ms(2021, 1, 1, zone=UTC)), last, 3)
    assert (count, len(latest)) == (MOST_COUNTED, 3)
    assert [following(cron, one) for one in latest[:-1]] == latest[1:]
    assert following(cron, latest[-1]) > last


def test_one_tick_a_year_is_counted_exactly():
    cron, first = Cron("0 0 1 1 *", "UTC"), ms(1970, 1, 1, zone=UTC)
    years = [ms(year, 1, 1, zone=UTC) for year in range(1970, 2027)]
    assert cron.between(first, ms(2026, 11, 29, zone=UTC), 1000) == (len(years), years)


def test_intervals_count_from_the_epoch_or_from_a_start():
    assert Interval(30_000).after(29_999) == 30_000
    assert Interval(30_000).after(30_000) == 60_000
    assert Interval(30_000, origin=7_000).after(30_000) == 37_000


@pytest.mark.parametrize(
    ("first", "last", "most", "expected"),
    [
        (3, 25, 9, (3, [3, 13, 23])),
        (3, 23, 2, (3, [13, 23])),
        (3, 12, 9, (1, [3])),
        (3, 3, 1, (1, [3])),
        (3, 10**9, 1, (10**8, [10**9 - 7])),
        (7, 25, 9, (3, [7, 13, 23])),  # a tick of another origin
    ],
)
def test_ticks_of_an_interval_are_computed(first, last, most, expected):
    assert Interval(10, origin=3).between(first, last, most) == expected


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
        ("0s", "an interval from 1 s to 366 days"),
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


@pytest.mark.parametrize(
    ("zone", "example"),
    [(ZoneInfo("Asia/Tokyo"), "Asia/Tokyo"), (UTC, "Europe/Berlin"), (None, "Europe/Berlin"), (2, "Europe/Berlin")],
)
def test_a_time_zone_that_is_no_name_is_refused_with_a_name(zone, example):
    with pytest.raises(InvalidSetting) as refused:
        recurrence("0 * * * *", zone)
    assert str(refused.value) == f"the time zone is {zone!r}: give its name as a text, such as {example!r}"
