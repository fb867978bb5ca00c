"""The definition of a schedule: what is refused, what is caught up, how much later jitter makes a tick."""

from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, cast

import pytest

from reliq.errors import InvalidMessage, InvalidName, InvalidSetting
from reliq.features.schedules.model import MOST_CAUGHT_UP, ON_TIME, Definition, ScheduleOptions, define, ticks_now
from reliq.features.schedules.recurrence import MOST_COUNTED, milliseconds_of, text_of

MINUTE = 60_000


def made(when="1m", name="s", queue="q", body="x", max_body=1024, **options: Any):
    return define(name, when, queue, body, cast("ScheduleOptions", options), max_body)


def at(text):
    return milliseconds_of(datetime.fromisoformat(text))


def test_a_definition_is_plain_values():
    found = made(
        "*/5  * * * *", body={"a": 1}, tz="Europe/Berlin", headers={"h": "v"}, key="k", priority="high", ttl="1h"
    )
    assert found == Definition(
        "s", "q", "*/5 * * * *", b'{"a":1}', "Europe/Berlin", headers={"h": "v"}, key="k", priority="high", ttl=3600.0
    )
    assert made("1.5m").when == "90s"


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"name": ""}, InvalidName, "schedule name ''"),
        ({"name": "a b"}, InvalidName, "'a b'"),
        ({"name": "x" * 101}, InvalidName, "schedule name"),
        ({"name": "-x"}, InvalidName, "'-x'"),
        ({"name": None}, InvalidName, "None"),
        ({"queue": "a}b"}, InvalidName, "'a}b'"),
        ({"tz": "Mars/Olympus"}, InvalidSetting, "'Mars/Olympus'"),
        ({"tz": "Mars/Olympus", "when": "30s"}, InvalidSetting, "'Mars/Olympus'"),
        ({"when": "0 0 31 2 *"}, InvalidSetting, "'0 0 31 2 \\*' never fires"),
        ({"when": "0s"}, InvalidSetting, "'0s'"),
        (
            {"start": "2027-01-02", "end": "2027-01-01"},
            InvalidSetting,
            "2027-01-01T00:00:00Z, is before its start, 2027-01-02",
        ),
        ({"start": "tomorrow"}, InvalidSetting, "'tomorrow'"),
        ({"end": 5}, InvalidSetting, "end is 5"),
        (
            {"when": "0 0 1 1 *", "start": "2027-02-01", "end": "2027-03-01"},
            InvalidSetting,
            "'s' never fires: '0 0 1 1 \\*' has no tick",
        ),
        ({"start": "9999-12-31T23:00"}, InvalidSetting, "has no tick after its start, 9999-12-31T23:00:00Z"),
        ({"when": "0 0 29 2 *", "start": "9999-01-01"}, InvalidSetting, "has no tick after its start"),
        ({"end": "9999-12-31T23:00-05:00"}, InvalidSetting, "outside of the years 1 to 9999"),
        ({"jitter": "2m"}, InvalidSetting, "jitter is '2m'"),
        ({"jitter": "-1s"}, InvalidSetting, "'-1s'"),
        ({"when": "* * * * *", "jitter": "2d"}, InvalidSetting, "'2d'"),
        ({"when": "*/5 * * * *", "jitter": "1h"}, InvalidSetting, "jitter is '1h'.* of '\\*/5 \\* \\* \\* \\*', 300 s"),
        ({"when": "0,50 9 * * *", "jitter": 3000.5}, InvalidSetting, "jitter is 3000.5.* 3000 s"),
        ({"when": "0,1 0 1 1 *", "tz": "Asia/Tokyo", "jitter": "61s"}, InvalidSetting, "jitter is '61s'.* 60 s"),
        ({"catch_up": "some"}, InvalidSetting, "'some'.*latest, all, none"),
        ({"catch_up_limit": 0}, InvalidSetting, "catch_up_limit is 0"),
        ({"catch_up_limit": MOST_CAUGHT_UP + 1}, InvalidSetting, "catch_up_limit"),
        ({"body": "x" * 1025}, InvalidMessage, "1,025 bytes"),
        ({"body": object()}, InvalidMessage, "type object"),
        ({"priority": "urgent"}, InvalidMessage, "'urgent'"),
        ({"key": ""}, InvalidMessage, "key is ''"),
        ({"key": "a", "limit_key": "b"}, InvalidMessage, "limit_key 'b'"),
        ({"ttl": 0}, InvalidMessage, "ttl is 0"),
        ({"delay": 5}, TypeError, "'delay'"),
    ],
)
def test_a_wrong_value_is_refused_and_named(options, error, why):
    with pytest.raises(error, match=why):
        made(**options)


def test_start_and_end_bound_the_ticks():
    found = made("1h", start="2027-01-01T10:30", end="2027-01-01T12:30+00:00")
    assert [text_of(tick) for tick in found.ticks(0, 9)] == [
        "2027-01-01T10:30:00Z", "2027-01-01T11:30:00Z", "2027-01-01T12:30:00Z",
    ]  # fmt: skip
    berlin = made("0 * * * *", tz="Europe/Berlin", start="2027-01-01T10:30")
    assert [text_of(tick) for tick in berlin.ticks(0, 1)] == ["2027-01-01T10:00:00Z"]
    aware = made("1h", start=datetime(2027, 1, 1, tzinfo=UTC))
    assert aware.next_tick(0) == at("2027-01-01T00:00Z")


def test_jitter_is_the_same_in_every_process_and_spreads_the_schedules():
    ticks = range(0, 100 * MINUTE, MINUTE)
    one, again, other = made(jitter="30s"), made(jitter="30s"), made(jitter="30s", name="t")
    late = [one.due(tick) - tick for tick in ticks]
    assert late == [again.due(tick) - tick for tick in ticks]
    assert late != [other.due(tick) - tick for tick in ticks]
    assert min(late) >= 0
    assert max(late) < 30_000
    assert len(set(late)) > 90


def test_the_id_names_the_tick():
    assert made().message_id(at("2026-11-21T10:00Z")) == "s@2026-11-21T10:00:00Z"
    assert made().message_id(at("2026-11-21T10:00:00.250Z")) == "s@2026-11-21T10:00:00.250Z"
    longest = made(name="x" * 100)
    assert longest.message(longest.message_id(1)).id.endswith(".001Z")


def caught_up(now, **options):
    """What is sent at `now` for a schedule of every minute whose next tick is that of minute 1."""
    ticks = ticks_now(made(**options), MINUTE, now)
    return [tick // MINUTE for tick in ticks.send], ticks.missed, ticks.following and ticks.following / MINUTE


def test_one_tick_that_is_due_is_sent_whatever_the_policy():
    for policy in ("latest", "all", "none"):
        assert caught_up(MINUTE + 5, catch_up=policy) == ([1], 0, 2)


def test_after_an_hour_the_policy_decides():
    now = 60 * MINUTE + 30_000
    assert caught_up(now) == ([60], 59, 61)
    assert caught_up(now, catch_up="all") == ([*range(1, 61)], 0, 61)
    assert caught_up(now, catch_up="all", catch_up_limit=5) == ([56, 57, 58, 59, 60], 55, 61)
    assert caught_up(now, catch_up="none") == ([], 60, 61)
    assert caught_up(60 * MINUTE + ON_TIME, catch_up="none") == ([60], 59, 61)


@pytest.mark.parametrize(("when", "counted"), [("1m", 365 * 24 * 60), ("* * * * *", MOST_COUNTED)])
def test_after_a_year_the_latest_ticks_count(when, counted):
    year = 365 * 24 * 60
    assert caught_up(year * MINUTE + 7, when=when) == ([year], counted - 1, year + 1)
    sent, missed, following = caught_up(year * MINUTE, when=when, catch_up="all", catch_up_limit=2)
    assert (sent, missed, following) == ([year - 1, year], counted - 2, year + 1)
    sent, missed, _ = caught_up(year * MINUTE, when=when, catch_up="all", catch_up_limit=MOST_CAUGHT_UP)
    assert sent == [*range(year - MOST_CAUGHT_UP + 1, year + 1)]
    assert missed == counted - MOST_CAUGHT_UP


def test_all_ticks_of_an_outage_of_two_hours_are_counted():
    ticks = ticks_now(made("1s"), 0, 7_200_000)
    assert (ticks.send, ticks.missed, ticks.following) == ([7_200_000], 7_200, 7_201_000)
    at_minutes = ticks_now(made("* * * * *"), 0, 86_400_000)
    assert (at_minutes.send, at_minutes.missed) == ([86_400_000], 24 * 60)


def test_after_an_outage_around_a_change_of_the_clock_each_tick_is_sent_once():
    found = made("*/10 */2 * * *", tz="Pacific/Chatham", catch_up="all", catch_up_limit=MOST_CAUGHT_UP)
    first, now = found.next_tick(at("2026-01-01T00:00Z")), at("2026-04-06T00:00Z")
    assert first is not None
    every = [tick for tick in found.ticks(first - 1, 10_000) if tick <= now]
    assert ticks_now(found, first, now).send == every[-MOST_CAUGHT_UP:]
    assert ticks_now(found, first, now).missed == len(every) - MOST_CAUGHT_UP


def test_ticks_after_the_end_are_not_caught_up():
    for when in ("1m", "* * * * *"):
        assert caught_up(60 * MINUTE, when=when, end="1970-01-01T00:03", start="1970-01-01T00:01") == ([3], 2, None)


def test_a_tick_whose_jitter_is_not_over_is_not_caught_up():
    found = made(jitter="59s")
    now = found.due(5 * MINUTE) - 1
    assert ticks_now(found, MINUTE, now).send == [4 * MINUTE]
    assert ticks_now(found, MINUTE, now + 1).send == [5 * MINUTE]


def test_ticks_are_caught_up_to_the_first_whose_jitter_is_not_over():
    found = made("* * * * *", jitter="1h", catch_up="all", catch_up_limit=MOST_CAUGHT_UP)
    for now in range(3 * 60 * MINUTE, 4 * 60 * MINUTE, 17_003):
        every = [*takewhile(lambda tick: found.due(tick) <= now, range(2 * MINUTE, now, MINUTE))]  # noqa: B023
        assert ticks_now(found, MINUTE, now) == ([MINUTE, *every], 0, (every[-1] if every else MINUTE) + MINUTE)


@pytest.mark.parametrize(("when", "first"), [("1h", "9999-12-29T21:00"), ("0 * * * *", "9999-12-29T21:00")])
def test_the_ticks_end_with_the_calendar(when, first):
    definition = made(when, start=first, end="9999-12-31T23:59")
    assert [text_of(tick) for tick in definition.ticks(at("2026-01-01T00:00Z"), 9)] == [
        "9999-12-29T21:00:00Z", "9999-12-29T22:00:00Z", "9999-12-29T23:00:00Z", "9999-12-30T00:00:00Z"
    ]  # fmt: skip
    assert definition.next_tick(at("9999-12-31T22:00Z")) is None
