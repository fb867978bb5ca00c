"""Which monitor leads which queue."""

from collections import Counter

import pytest

from reliq_monitor.shares import leads, share_of

QUEUES = [f"queue-{number}" for number in range(60)]
MONITORS = [f"monitor-{number}" for number in range(3)]


def leaders(monitors, queues):
    return {queue: one for one in monitors for queue in share_of(one, monitors, queues)}


@pytest.mark.parametrize(("monitors", "queues"), [(1, 60), (2, 60), (3, 6), (3, 60), (8, 1000)])
def test_every_queue_is_led_by_exactly_one_monitor_and_the_shares_are_even(monitors, queues):
    every = [f"m{number}" for number in range(monitors)]
    names = [f"q{number}" for number in range(queues)]
    shares = [share_of(one, every, names) for one in every]
    assert sorted(name for share in shares for name in share) == sorted(names)
    assert min(map(len, shares)) >= 0.6 * queues / monitors
    assert max(map(len, shares)) <= 1.25 * queues / monitors


def test_all_compute_the_same_in_whatever_order_they_know_the_queues():
    assert share_of("monitor-1", MONITORS, QUEUES) == share_of("monitor-1", MONITORS, QUEUES[::-1])


def test_when_one_goes_its_queues_are_spread_and_the_others_stay():
    before, after = leaders(MONITORS, QUEUES), leaders(MONITORS[:2], QUEUES)
    moved = [queue for queue in QUEUES if before[queue] != after[queue]]
    theirs = [queue for queue in QUEUES if before[queue] == MONITORS[2]]
    assert set(theirs) <= set(moved)
    assert len(moved) <= len(theirs) + 2
    assert min(Counter(after[queue] for queue in theirs).values()) >= 3


def test_when_one_comes_queues_move_to_it_only():
    before, after = leaders(MONITORS[:2], QUEUES), leaders(MONITORS, QUEUES)
    assert len([queue for queue in QUEUES if before[queue] != after[queue] != MONITORS[2]]) <= 2


def test_a_spare_leads_nothing():
    assert share_of("spare", MONITORS, QUEUES) == share_of("spare", ["alone"], QUEUES) == []
    assert not leads("spare", MONITORS, "@batches")


def test_work_that_belongs_to_no_queue_has_one_leader_too():
    assert [leads(one, MONITORS, "@batches") for one in MONITORS].count(True) == 1
