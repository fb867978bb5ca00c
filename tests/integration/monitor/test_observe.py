"""The histograms: nothing is counted twice and nothing is lost, in any process."""

import itertools
import mmap
import random
from dataclasses import dataclass

import pytest

from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.observability.histograms import HTTP, PROCESS, RECOVERY, WAIT, Measurements, totals

NOW = 1_000_000


@dataclass
class Run:
    started: float
    message: Message


def run(started, waited=0.0):
    """A run that started at a time of the monotonic clock, of a message sent `waited` before."""
    sent = round((started - waited + NOW) * 1000)
    return Run(started, Message.decode("orders", NewMessage("x").element(sent)))


def read(measurements, family, *labels):
    (found,) = [
        (counts, total) for one, names, counts, total in totals(measurements) if (one, names) == (family, labels)
    ]
    return found


def by_bound(family, counts):
    return {bound: count for bound, count in zip((*family.bounds, "+Inf"), counts, strict=True) if count}


def test_a_value_on_a_bound_belongs_to_its_bucket():
    measurements = Measurements()
    measurements.add(RECOVERY, ("orders",), [0.1, 0.1000001, 300, 301])
    counts, total = read([measurements], RECOVERY, "orders")
    assert by_bound(RECOVERY, counts) == {0.1: 1, 0.25: 1, 300: 1, "+Inf": 1}
    assert total == pytest.approx(601.2000001)


def test_any_values_fall_where_a_search_one_by_one_puts_them():
    values = [random.lognormvariate(-3, 4) for _ in range(2000)]
    measurements = Measurements()
    measurements.add(PROCESS, ("orders",), list(values))
    counts, total = read([measurements], PROCESS, "orders")
    edges = [-1.0, *PROCESS.bounds, float("inf")]
    expected = [sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)]
    assert counts == expected
    assert total == pytest.approx(sum(values))


def test_no_values_make_no_series():
    measurements = Measurements()
    measurements.add(WAIT, ("orders",), [])
    assert measurements.read() == []


def test_runs_side_by_side_have_their_own_ends():
    measurements = Measurements()
    measurements.ran("orders", [(run(10.0, waited=0.2), 10.3), (run(10.1, waited=4.0), 10.102)], NOW)
    assert by_bound(PROCESS, read([measurements], PROCESS, "orders")[0]) == {0.005: 1, 0.5: 1}
    assert by_bound(WAIT, read([measurements], WAIT, "orders")[0]) == {0.25: 1, 5: 1}


def test_runs_in_turn_end_when_the_next_one_starts():
    measurements = Measurements()
    measurements.ran_in_turn("orders", [run(10.0), run(10.02), run(10.5)], 10.5003, NOW)
    assert by_bound(PROCESS, read([measurements], PROCESS, "orders")[0]) == {0.05: 1, 0.5: 1, 0.0005: 1}


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 95, 96, 256, 257])
def test_counts_and_sums_of_a_long_batch_are_exact(length):
    measurements = Measurements()
    starts = [10 + 0.00001 * place for place in range(length)]
    measurements.ran_in_turn("orders", [run(start, waited=1.0) for start in starts], 10 + 0.00001 * length, NOW)
    counts, total = read([measurements], PROCESS, "orders")
    assert by_bound(PROCESS, counts) == {0.0001: length}
    assert total == pytest.approx(0.00001 * length, rel=1e-3)
    counts, total = read([measurements], WAIT, "orders")
    assert sum(counts) == length
    assert total == pytest.approx(length, rel=0.01)


def test_one_slow_run_among_many_quick_ones_is_seen_as_it_was():
    measurements = Measurements()
    starts = [10 + 0.00001 * place + (2.0 if place > 100 else 0.0) for place in range(256)]
    measurements.ran_in_turn("orders", [run(start) for start in starts], starts[-1] + 0.00001, NOW)
    counts, total = read([measurements], PROCESS, "orders")
    assert by_bound(PROCESS, counts) == {0.0001: 255, 2.5: 1}
    assert total == pytest.approx(2.00256, rel=1e-3)


def test_a_clock_that_runs_behind_makes_no_wait_negative():
    measurements = Measurements()
    measurements.ran("orders", [(run(10.0, waited=-5.0), 10.1)], NOW)
    assert read([measurements], WAIT, "orders")[1] == 0.0


def test_processes_add_up(tmp_path):
    parent = [Measurements.shared(tmp_path / str(place), ["orders", "mails"]) for place in range(2)]
    for place in range(2):
        child = Measurements.shared(tmp_path / str(place), ["mails", "orders"])
        child.ran("orders", [(run(10.0), 10.002)] * (place + 1), NOW)
    counts, total = read(parent, PROCESS, "orders")
    assert by_bound(PROCESS, counts) == {0.005: 3}
    assert total == pytest.approx(0.006)
    assert read(parent, PROCESS, "mails") == ([0] * len(counts), 0.0)


def test_a_process_that_takes_the_place_of_a_killed_one_goes_on_adding(tmp_path):
    for _ in range(3):
        Measurements.shared(tmp_path / "0", ["orders"]).ran("orders", [(run(10.0), 11.0)], NOW)
    assert sum(read([Measurements.shared(tmp_path / "0", ["orders"])], WAIT, "orders")[0]) == 3


def test_a_worker_may_measure_what_its_parent_does_not_know(tmp_path):
    child = Measurements.shared(tmp_path / "0", ["orders"])
    child.recovered("orders", 0.3, 2)
    assert sum(read([child], RECOVERY, "orders")[0]) == 2
    assert (tmp_path / "0").stat().st_size < mmap.PAGESIZE


def test_recovery_counts_every_message_and_no_time_before_the_death():
    measurements = Measurements()
    measurements.recovered("orders", 1.2, 3)
    measurements.recovered("orders", -0.4, 1)
    measurements.recovered("orders", 9.9, 0)
    counts, total = read([measurements], RECOVERY, "orders")
    assert by_bound(RECOVERY, counts) == {0.1: 1, 1.5: 3}
    assert total == pytest.approx(3.6)


def test_methods_nobody_knows_share_one_label():
    measurements = Measurements()
    measurements.answered("GET", "/v1/queues", 200, 0.01)
    measurements.answered("BREW", "/v1/queues", 405, 0.01)
    measurements.answered("PROPFIND", "/v1/queues", 405, 0.01)
    labels = {names: sum(counts) for family, names, counts, _ in measurements.read() if family is HTTP}
    assert labels == {("GET", "/v1/queues", "200"): 1, ("other", "/v1/queues", "405"): 2}
