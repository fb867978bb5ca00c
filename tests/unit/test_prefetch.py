"""How many messages a worker holds: enough for its slots during a round trip, no more than others could need."""

import pytest

from reliq.worker.prefetch import MOST, Prefetch, RoundTrip

SLOTS = 16


def held(run_seconds: float, trip_seconds: float, slots: int = SLOTS) -> int:
    trip = RoundTrip()
    trip.note(trip_seconds)
    prefetch = Prefetch(slots, trip)
    for _ in range(100):
        prefetch.note(run_seconds * slots, slots)
        prefetch.limit()
    return prefetch.limit()


@pytest.mark.parametrize(
    ("run_seconds", "trip_seconds", "messages"),
    [
        (10.0, 0.0003, SLOTS),  # slow handlers: other workers get the rest
        (0.1, 0.0003, SLOTS),
        (0.0101, 0.0003, 31),  # work for BUDGET
        (0.00001, 0.0003, MOST),
        (0.1, 0.05, 2 * SLOTS),  # one that runs, and one for two round trips
        (0.0101, 0.005, 31),
        (0.0101, 0.05, 174),
        (10.0, 0.05, SLOTS),
        (0.00001, 0.05, MOST),
    ],
)
def test_what_waits_here_has_work_for_two_round_trips(run_seconds, trip_seconds, messages):
    assert held(run_seconds, trip_seconds) == messages


def test_a_busy_moment_is_no_distance():
    trip = RoundTrip()
    for seconds in (0.001, 0.0004, 0.5, 0.0005):
        trip.note(seconds)
    assert trip.seconds == 0.0005


def test_a_redis_that_moves_away_is_noted():
    trip = RoundTrip()
    trip.note(0.001)
    for _ in range(30):
        trip.note(0.05)
    assert trip.seconds == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize(("run_seconds", "trip_seconds", "waits"), [(0.01, 0.0003, False), (0.01, 0.005, True)])
def test_the_next_messages_are_asked_for_ahead_if_a_trip_takes_a_noticeable_part(run_seconds, trip_seconds, waits):
    trip = RoundTrip()
    trip.note(trip_seconds)
    prefetch = Prefetch(1, trip)
    for _ in range(100):
        prefetch.note(run_seconds, 1)
        prefetch.limit()
    assert prefetch.waits_for_trips is waits
