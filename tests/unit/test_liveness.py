"""Who is gone: by the lease always, by the missing connection sooner."""

import time

import pytest

from reliq.keys import connection_name, new_owner
from reliq_monitor import liveness
from reliq_monitor.liveness import Liveness, Vanished

WORKER, HTTP = new_owner(), new_owner(connected=False)
NOW = 1_700_000_000_000


def clients(*consumers):
    return b"".join(f"id=7 addr=1:2 name={connection_name(one)} age=1\n".encode() for one in consumers)


@pytest.fixture
def settled(monkeypatch):
    monkeypatch.setattr(liveness, "SETTLED", 0.0)


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
    one = Liveness()
    assert look(one, WORKER) == []
    assert look(one) == []
    assert look(one, WORKER) == []
    assert look(one) == []
    assert look(one) == [WORKER]


@pytest.mark.usefixtures("settled")
def test_each_queue_is_looked_at_by_itself():
    one = Liveness()
    one.connections(clients(), 1.0)
    assert [one.look(queue, [(WORKER, NOW + 1)], NOW) for queue in ("a", "b")] == [[], []]
    one.connections(clients(), 1.0)
    assert [len(one.look(queue, [(WORKER, NOW + 1)], NOW)) for queue in ("a", "b")] == [1, 1]


@pytest.mark.usefixtures("settled")
def test_looks_before_our_own_reconnect_say_nothing():
    one = Liveness()
    look(one, since=1.0)
    assert look(one, since=2.0) == []


def test_nobody_is_missing_soon_after_our_own_reconnect():
    """After a restart of Redis everybody comes back, some sooner than others."""
    one, now = Liveness(), time.monotonic()
    assert [look(one, since=now) for _ in range(3)] == [[], [], []]
    assert look(one, since=now - 10) == []
    assert look(one, since=now - 10) == [WORKER]


@pytest.mark.usefixtures("settled")
def test_a_lease_without_a_connection_of_its_own_is_judged_by_its_time_only():
    one = Liveness()
    look(one, WORKER)
    assert HTTP not in look(one, WORKER)
