"""Who is gone: by the lease always, by the missing connection sooner."""

import time
from types import SimpleNamespace

import pytest

from reliq.model.keys import connection_name, new_owner
from reliq_monitor import absences, clock_jumps, liveness
from reliq_monitor.liveness import Liveness, Vanished

WORKER, HTTP = new_owner(), new_owner(connected=False)
NOW = 1_700_000_000_000


def clients(*consumers):
    return frozenset(map(connection_name, consumers))


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (liveness, absences, clock_jumps):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def settled(monkeypatch):
    monkeypatch.setattr(liveness, "SETTLED", 0.0)


def impatient():
    return Liveness(reconnect_grace=0)


def look(one, *connected, since=1.0, deadline=NOW + 1000):
    one.connections(clients(*connected), since)
    return [gone.consumer for gone in one.look("q", [(WORKER, deadline), (HTTP, NOW + 1000)], NOW)]


def test_a_lease_that_is_over_or_missing_decides_always():
    one = Liveness()
    one.connections(None, 1.0)
    gone = one.look("q", [("c1", NOW - 5), ("c2", None), ("c3", NOW + 1)], NOW)
    assert gone == [Vanished("c1", known_dead=False, since=NOW - 5), Vanished("c2", known_dead=False, since=NOW)]


@pytest.mark.usefixtures("settled")
def test_a_connection_must_be_missing_in_two_looks_running():
    one = impatient()
    assert look(one, WORKER) == []
    assert look(one) == []
    assert look(one, WORKER) == []
    assert look(one) == []
    assert look(one) == [WORKER]


@pytest.mark.usefixtures("settled")
def test_each_queue_is_looked_at_by_itself():
    one = impatient()
    one.connections(clients(), 1.0)
    assert [one.look(queue, [(WORKER, NOW + 1)], NOW) for queue in ("a", "b")] == [[], []]
    one.connections(clients(), 1.0)
    assert [len(one.look(queue, [(WORKER, NOW + 1)], NOW)) for queue in ("a", "b")] == [1, 1]


@pytest.mark.usefixtures("settled")
def test_the_last_consumer_of_a_queue_is_not_missed_when_it_is_gone():
    """Its queue is not looked at any more; as long as one is missed, the connections are listed at every look."""
    one = impatient()
    look(one, HTTP)
    assert one.misses_some
    one.connections(None, 1.0)  # they could not be listed
    assert one.misses_some
    one.connections(clients(HTTP), 1.0)
    assert not one.misses_some


@pytest.mark.usefixtures("settled")
def test_looks_before_our_own_reconnect_say_nothing():
    one = Liveness()
    look(one, since=1.0)
    assert look(one, since=2.0) == []


def test_nobody_is_missing_soon_after_our_own_reconnect():
    """After a restart of Redis all consumers come back, some sooner than others."""
    one, now = impatient(), time.monotonic()
    assert [look(one, since=now) for _ in range(3)] == [[], [], []]
    assert look(one, since=now - 10) == []
    assert look(one, since=now - 10) == [WORKER]


def test_a_consumer_whose_connections_were_cut_has_the_grace_to_return(clock):
    one = Liveness(reconnect_grace=5)
    assert look(one, WORKER) == []
    for seconds in (0, 0.5, 2, 2):
        clock.now += seconds
        assert look(one) == []
    clock.now += 0.5
    assert look(one) == [WORKER]


def test_one_that_returns_has_a_whole_grace_again(clock):
    one = Liveness(reconnect_grace=5)
    look(one)
    clock.now += 4
    look(one, WORKER)
    clock.now += 4
    assert look(one) == []
    clock.now += 4
    assert look(one) == []
    clock.now += 1
    assert look(one) == [WORKER]


def test_after_our_own_reconnect_no_lease_is_judged_for_a_grace(clock):
    """No lease could be renewed while Redis was away."""
    one = Liveness()
    assert look(one, WORKER, since=900.0) == []
    clock.now += 60
    one.connections(clients(WORKER), clock.now, reconnected=True)
    assert one.look("q", [(WORKER, NOW - 1)], NOW) == []
    clock.now += liveness.OUTAGE_GRACE
    assert one.look("q", [(WORKER, NOW - 1)], NOW) == [Vanished(WORKER, known_dead=False, since=NOW - 1)]


def test_a_standby_that_was_cut_off_with_the_others_gives_them_the_grace_too(clock):
    one = Liveness()
    one.connections(clients(WORKER), clock.now - 1, reconnected=True)
    assert one.look("q", [(WORKER, NOW - 1)], NOW) == []


def test_after_a_pause_of_the_monitor_no_lease_is_judged_for_a_grace(clock):
    one = Liveness()
    look(one, WORKER)
    one.disturbed()
    assert look(one, WORKER, deadline=NOW - 1) == []
    clock.now += liveness.OUTAGE_GRACE
    assert look(one, WORKER, deadline=NOW - 1) == [WORKER]


def test_a_lease_that_is_nowhere_is_over_even_after_an_outage(clock):
    """The lease was removed, by its owner's end or by a reclaim: it cannot be renewed."""
    one = Liveness()
    one.disturbed()
    assert look(one, WORKER, deadline=None) == [WORKER]


def test_absence_is_not_counted_over_a_gap_in_leadership(clock):
    one = Liveness(reconnect_grace=5)
    look(one, WORKER)
    look(one)
    one.forget()  # another monitor led meanwhile, and the consumer was back
    clock.now += 60
    assert look(one) == []
    clock.now += 1
    assert look(one) == []
    clock.now += 5
    assert look(one) == [WORKER]


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
def test_a_jump_of_the_servers_clock_ends_no_lease_and_keeps_none_alive(clock, jump):
    one = Liveness()
    assert look(one, WORKER) == []
    one.jumped(jump)
    one.connections(clients(WORKER), 1.0)
    assert one.look("q", [(WORKER, NOW + 1000)], NOW + jump) == []
    (gone,) = one.look("q", [(WORKER, NOW + 1000)], NOW + 1000 + jump)
    assert gone == Vanished(WORKER, known_dead=True, since=NOW + 1000 + jump)
    assert one.look("q", [(WORKER, NOW + 1001 + jump)], NOW + 1000 + jump) == []  # it was renewed by the new clock


def test_a_jump_ahead_ends_no_lease_of_a_queue_that_comes_from_another_monitor_by_it(clock):
    jump, leases = 3_600_000, [(WORKER, NOW + 1000), (HTTP, NOW - 5)]
    one = Liveness()
    one.connections(None, 1.0)
    one.jumped(jump)
    assert one.look("new", leases, NOW + jump) == [Vanished(HTTP, known_dead=True, since=NOW - 5 + jump)]
    one.keep(())
    clock.now += 1
    assert one.look("new", leases[:1], NOW + jump) == []  # it went to the other and came back
    one.jumped(jump)
    assert one.look("newer", leases[:1], NOW + 2 * jump) == []
    assert [gone.consumer for gone in one.look("newer", leases[:1], NOW + 1000 + 2 * jump)] == [WORKER]
    clock.now += liveness.OUTAGE_GRACE
    assert [gone.consumer for gone in one.look("newest", leases[:1], NOW + jump)] == [WORKER]


def test_the_shift_of_a_lease_is_forgotten_with_its_consumer(clock):
    one = Liveness()
    one.connections(None, 1.0)
    for number in range(3):
        one.look("q", [(f"c{number}", NOW + 1000)], NOW)
        one.jumped(-2000)
    one.look("q", [("c3", NOW + 1000)], NOW)
    assert one._deadlines._shifted == {}


def test_a_lease_that_was_renewed_between_the_latest_look_and_a_jump_ahead_does_not_end_by_it(clock):
    jump = 3_600_000
    one = Liveness()
    one.connections(None, 1.0)
    assert one.look("q", [(WORKER, NOW + 1000)], NOW) == []
    one.jumped(jump)
    assert one.look("q", [(WORKER, NOW + 1400)], NOW + jump) == []
    (gone,) = one.look("q", [(WORKER, NOW + 1400)], NOW + 1400 + jump)
    assert gone.consumer == WORKER


def test_a_lease_that_ends_after_a_jump_ahead_is_over(clock):
    jump = 3_600_000
    one = Liveness()
    one.connections(None, 1.0)
    one.jumped(jump)
    assert one.look("q", [(WORKER, NOW + jump + 1000)], NOW + jump) == []
    clock.now += 1
    assert [gone.consumer for gone in one.look("q", [(WORKER, NOW + jump + 1000)], NOW + jump + 1000)] == [WORKER]


def test_a_lease_that_was_renewed_after_one_jump_is_shifted_by_the_next_one_only(clock):
    jump = 3_600_000
    one = Liveness()
    one.connections(None, 1.0)
    assert one.look("q", [(WORKER, NOW + 1000)], NOW) == []
    one.jumped(-jump)
    one.forget()  # others led the queue, and judged the lease by the new clock
    clock.now += 60
    one.jumped(jump)
    assert one.look("q", [(WORKER, NOW - jump + 61_000)], NOW + 60_000) == []
    one.look("q", [(WORKER, NOW + 75_000)], NOW + 60_000)
    one.jumped(-jump)
    one.jumped(jump)
    assert one.look("q", [(WORKER, NOW + 75_000)], NOW + 60_000) == []


def test_a_jump_back_ends_no_lease_of_a_queue_that_was_not_seen_before_it(clock):
    one = Liveness()
    one.connections(None, 1.0)
    one.jumped(-3_600_000)
    assert one.look("new", [(WORKER, NOW + 1000)], NOW) == []


@pytest.mark.usefixtures("settled")
def test_a_lease_without_a_connection_of_its_own_is_judged_by_its_time_only():
    one = impatient()
    look(one, WORKER)
    assert HTTP not in look(one, WORKER)


@pytest.mark.parametrize(("moved", "jump"), [(0, 0), (900, 0), (-900, 0), (3_600_000, 3_600_000), (-5000, -5000)])
def test_a_jump_is_told_from_a_slow_answer(moved, jump):
    ours, server = iter([0.0, 0.5, 10.0, 13.0]), [NOW + 200, NOW + 11_500 + moved]

    def run(steps):
        next(steps)
        try:
            steps.send(server.pop(0))
        except StopIteration as stop:
            return stop.value

    watch = clock_jumps.ClockWatch(lambda: next(ours))
    assert run(watch.ask()) == 0
    assert abs(run(watch.ask()) - jump) <= 2000
