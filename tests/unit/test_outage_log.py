"""The log lines of outages: few of them, and none that is missing."""

import logging

import pytest

from reliq.errors import ForeignKey, OutcomeUnknown, RedisUnavailable, RedisUnsuitable
from reliq.runtime import outage_log
from reliq.runtime.outage_log import OutageLog

AWAY = RedisUnavailable("Redis at a cannot be reached")
LOG = logging.getLogger("reliq.worker")


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: `clock.now`."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr("time.monotonic", lambda: Clock.now)
    monkeypatch.setattr(outage_log, "_unreachable", {})
    return Clock


@pytest.fixture
def said(caplog):
    def said():
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    return said


def test_a_loop_says_when_it_begins_reminds_and_says_when_it_is_over(clock, said):
    one = OutageLog(LOG, "queue=a")
    for _ in range(3):
        one.failed(ForeignKey("a foreign key"))
    assert said() == ["queue=a: a foreign key"]
    clock.now += 31
    one.failed(ForeignKey("another foreign key"))
    one.failed(ForeignKey("another foreign key"))
    assert said() == ["queue=a: for 31 s: another foreign key"]
    clock.now += 1
    one.over()
    one.over()
    assert said() == ["queue=a: works again after 32.0 s"]


def test_loops_that_cannot_reach_one_redis_have_one_line_together(clock, said):
    loops = [OutageLog(LOG, f"queue={name}") for name in "abc"]
    for one in loops:
        one.failed(AWAY)
    assert said() == ["queue=a: Redis at a cannot be reached"]
    clock.now += 31
    for one in reversed(loops):
        one.failed(AWAY)
    assert said() == ["queue=c and 2 more: for 31 s: Redis at a cannot be reached"]
    for one in reversed(loops):
        one.over()
    assert said() == ["queue=c and 2 more: works again after 31.0 s"]


def test_outages_that_are_past_are_forgotten(clock):
    """The pods of a Redis Cluster have other addresses, and so other errors, with each restart."""
    for number in range(3):
        OutageLog(LOG, "queue=a").failed(RedisUnavailable(f"node 10.0.0.{number}:6379 cannot be reached"))
        clock.now += 31
    one = OutageLog(LOG, "queue=a")
    one.failed(AWAY)
    one.over()
    one.failed(RedisUnavailable("Redis at b cannot be reached"))
    assert list(outage_log._unreachable) == [("reliq.worker", "Redis at b cannot be reached")]


@pytest.mark.parametrize("kind", [OutcomeUnknown, RedisUnsuitable])
def test_a_call_without_answer_and_a_server_that_refuses_all_are_said_once_for_all_loops(clock, said, kind):
    """A restart of Redis, or a change of its password, wrote two lines for each queue."""
    error = kind("Redis at a")
    error.of_server = True
    loops = [OutageLog(LOG, f"queue={name}") for name in "abc"]
    for one in loops:
        one.failed(error)
    for one in loops:
        one.over()
    assert said() == ["queue=a: Redis at a", "queue=a and 2 more: works again after 0.0 s"]


def test_what_fails_and_works_in_turn_is_said_once_in_thirty_seconds(clock, said):
    """A worker whose user may claim and not wait wrote twelve lines a second."""
    one = OutageLog(LOG, "queue=a")
    for _ in range(310):
        one.failed(RedisUnsuitable("Redis refuses: BLMOVE"))
        clock.now += 0.1
        one.over()
    assert said() == ["queue=a: Redis refuses: BLMOVE", "queue=a: works again after 0.1 s"] * 2
    one.failed(RedisUnsuitable("Redis refuses: BLMOVE"))
    clock.now += 31
    one.failed(RedisUnsuitable("Redis refuses: BLMOVE"))
    one.over()
    assert said() == ["queue=a: for 31 s: Redis refuses: BLMOVE", "queue=a: works again after 31.0 s"]


def test_what_a_server_that_is_back_refuses_is_said_at_once(clock, said):
    one = OutageLog(LOG, "queue=a")
    one.failed(AWAY)
    clock.now += 1
    for _ in range(2):
        one.failed(RedisUnsuitable("Redis refuses: the password is wrong"))
        one.failed(AWAY)
    assert said() == ["queue=a: Redis at a cannot be reached", "queue=a: for 1 s: Redis refuses: the password is wrong"]


def test_what_else_fails_is_said_by_each(said):
    for name in "ab":
        OutageLog(LOG, f"queue={name}").failed(ForeignKey("a foreign key"))
    assert said() == ["queue=a: a foreign key", "queue=b: a foreign key"]


def test_another_redis_and_another_logger_have_a_line_of_their_own(clock, said):
    OutageLog(LOG, "queue=a").failed(AWAY)
    OutageLog(LOG, "queue=b").failed(RedisUnavailable("Redis at b cannot be reached"))
    OutageLog(logging.getLogger("reliq.monitor"), "monitor").failed(AWAY)
    assert len(said()) == 3


def test_a_loop_that_fails_while_the_others_work_again_says_so(clock, said):
    one, other = OutageLog(LOG, "queue=a"), OutageLog(LOG, "queue=b")
    one.failed(AWAY)
    other.failed(AWAY)
    clock.now += 5
    one.over()
    clock.now += 1
    other.failed(AWAY)
    other.failed(AWAY)
    clock.now += 1
    other.over()
    assert said() == [
        "queue=a: Redis at a cannot be reached",
        "queue=a and 1 more: works again after 5.0 s",
        "queue=b: for 6 s: Redis at a cannot be reached",
        "queue=b: works again after 7.0 s",
    ]


def test_an_outage_whose_loops_have_ended_hides_no_later_one(clock, said):
    OutageLog(LOG, "queue=a").failed(AWAY)
    clock.now += 31
    OutageLog(LOG, "queue=b").failed(AWAY)
    assert said() == ["queue=a: Redis at a cannot be reached", "queue=b: Redis at a cannot be reached"]
