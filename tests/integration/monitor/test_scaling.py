"""How many workers a queue wants."""

from types import SimpleNamespace

import pytest

from reliq.model.stats import Stats
from reliq.observability.autoscale import WAIT_WANTED, Demand, desired_workers


@pytest.mark.parametrize(
    ("ready", "age", "arrivals", "service", "slots", "wanted"),
    [
        (0, 0, 0, 1.0, 1, 0),  # nothing to do
        (0, 0, 0.01, 0.001, 1, 1),  # little to do
        (1, 0, 0, 0.0, 1, 1),  # the duration of a run is not known yet
        (0, 0, 10, 0.5, 1, 5),  # ten a second of half a second each keep five busy
        (0, 0, 10, 0.5, 4, 2),
        (300, 0, 0, 1.0, 1, 10),  # 300 seconds of work, in 30
        (300, 15, 0, 1.0, 1, 20),  # half of the time is over
        (300, 3600, 0, 1.0, 1, 40),  # too late already: a quarter of the time, not none
        (300, 0, 10, 1.0, 10, 2),
    ],
)
def test_workers_wanted(ready, age, arrivals, service, slots, wanted):
    assert desired_workers(ready, age, arrivals, service, slots) == wanted


@pytest.mark.parametrize(
    ("processing", "service", "slots", "wanted"),
    [
        (1, 0.0, 1, 1),  # the first run has not ended
        (9, 0.0, 4, 3),
        (9, 3600.0, 4, 3),
        (1, 0.001, 4, 1),
        (256, 0.001, 1, 1),  # of quick handlers, one worker holds many that wait for their turn
    ],
)
def test_what_runs_keeps_its_workers(processing, service, slots, wanted):
    assert desired_workers(0, 0.0, 0.0, service, slots, processing) == wanted


def reading(ready, claimed, processing=0):
    counters = {"claimed": claimed}
    return Stats("orders", ready, processing, 0, 0, 0, 0.0, 0, paused=False, counters=counters)


def test_a_long_run_without_arrivals_keeps_its_worker(clock):
    demand = Demand(slots=1)
    for _ in range(3):
        assert demand.note(reading(ready=0, claimed=1, processing=1), runs=0, run_seconds=0.0) == 1
        clock[0] += 60


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("reliq.observability.autoscale.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_arrivals_are_what_became_ready_claimed_since_or_not(clock):
    demand = Demand(slots=1)
    assert demand.note(reading(ready=0, claimed=0), runs=0, run_seconds=0.0) == 0
    clock[0] += 10
    # 100 came in ten seconds, of which 40 wait: 10/s of 0.5 s each, and 40 * 0.5 s to be worked off in 30 s.
    assert demand.note(reading(ready=40, claimed=60), runs=60, run_seconds=30.0) == 6


def test_service_time_is_that_of_the_latest_minute(clock):
    demand = Demand(slots=1)
    runs, seconds = 0, 0.0
    for minute in range(5):
        runs, seconds = runs + 600, seconds + 600 * (10.0 if minute == 0 else 0.1)
        wanted = demand.note(reading(ready=0, claimed=runs), runs, seconds)
        clock[0] += 60
    assert wanted == 1


def test_when_nothing_ran_lately_the_mean_of_all_runs_is_taken(clock):
    demand = Demand(slots=1)
    for _ in range(3):
        wanted = demand.note(reading(ready=60, claimed=100), runs=100, run_seconds=100.0)
        clock[0] += 60
    assert wanted == 60 / WAIT_WANTED
