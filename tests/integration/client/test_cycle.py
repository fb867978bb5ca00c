"""The cycle as a poller uses it; every test runs for the sync and for the asyncio face."""

import collections
import contextlib
import random
import threading
import time

import pytest

from reliq import Again, InvalidMessage, InvalidSetting, QueueFull, Retry, fixed
from tests.support.workers import eventually, working


def test_members_enter_once_and_leave(queue):
    assert queue.cycle.add("ann", "bob", "ann") == 2
    assert queue.cycle.add("bob", "cid") == 1
    assert queue.cycle.members() == ["ann", "bob", "cid"]
    assert queue.stats().ready == 3
    assert queue.cycle.remove("bob", "nobody") == 1
    assert queue.cycle.members() == ["ann", "cid"]


def test_a_removed_member_is_not_visited(queue):
    queue.cycle.add("ann", "bob", "cid")
    queue.cycle.remove("ann", "cid")
    with queue.consumer() as consumer:
        found = []
        while messages := consumer.claim(limit=3, wait=0.3):
            found += [(message.key, message.body) for message in messages]
    assert found == [("bob", b"bob")]
    eventually(lambda: queue.stats().counters["cancelled"] == 2)


def test_no_setting_of_reliqs_own_can_be_reset(queue):
    """Without its round a cycle would lose its members, without `prioritised` a queue what is urgent."""
    queue.cycle.add("ann")
    queue.send("x", priority="low")
    for name in ("round", "prioritised", "round_held", "version", "paused", "overflow", "unknown"):
        for value in (None, 1):
            with pytest.raises(InvalidSetting, match=f"no setting '{name}'"):
                queue.configure(max_length=5, **{name: value})
    assert queue.config().max_length is None
    with queue.consumer() as consumer:
        assert {message.body for message in consumer.claim(limit=3)} == {b"ann", b"x"}


def test_bad_members_are_refused(queue):
    for bad in ("", None, 7, "\ud800", "x" * 600):
        with pytest.raises(InvalidMessage, match="member is"):
            queue.cycle.add("good", bad)
    with pytest.raises(InvalidMessage, match="no member"):
        queue.cycle.add()
    assert queue.cycle.members() == []


def test_a_full_queue_takes_no_member(queue):
    queue.configure(max_length=1)
    with pytest.raises(QueueFull):
        queue.cycle.add("ann", "bob")
    assert queue.cycle.members() == []


def test_thousands_enter_in_steps(queue):
    names = [f"account-{number}" for number in range(2500)]
    assert queue.cycle.add(*names) == 2500
    assert queue.cycle.members() == sorted(names)
    assert queue.cycle.remove(*names) == 2500


@pytest.mark.parametrize(("members", "threads"), [(3, 1), (40, 1), (5, 4), (60, 4)])
def test_nobody_is_visited_more_than_one_round_ahead_of_another(app, members, threads):
    """Four workers, fewer and more members than threads, visits of very different length."""
    names = [f"m{number}" for number in range(members)]
    begun: collections.Counter[str] = collections.Counter()
    ended: collections.Counter[str] = collections.Counter()
    ahead, lock = [0], threading.Lock()

    def count(visits, name):
        with lock:
            visits[name] += 1
            ahead[0] = max(ahead[0], visits[name] - min(visits[one] for one in names))

    @app.handler("q")
    def visit(message):
        count(begun, message.key)
        time.sleep(random.choice([0, 0, 0, 0.001, 0.02]))
        count(ended, message.key)
        return Again()

    app.queue("q").cycle.add(*names)
    with contextlib.ExitStack() as workers:
        for _ in range(4):
            workers.enter_context(working(app, threads=threads))
        eventually(lambda: min(begun[one] for one in names) >= 20, timeout=60)
    assert ahead[0] == 1


def test_an_idle_worker_is_woken_by_the_next_round(app):
    """The one visit that holds up the others ends; those who wait in BLMOVE go on at once."""
    slow, go_on = threading.Event(), threading.Event()
    visits: collections.Counter[str] = collections.Counter()

    @app.handler("q")
    def visit(message):
        visits[message.key] += 1
        if message.key == "slow" and not go_on.is_set():
            slow.set()
            go_on.wait(30)
        return Again()

    app.queue("q").cycle.add("slow", "quick")
    with working(app), working(app):
        assert slow.wait(30)
        eventually(lambda: visits["quick"] == 1)
        go_on.set()
        eventually(lambda: min(visits.values()) >= 5, timeout=4)


def test_a_member_whose_handler_fails_is_tried_again_and_dies_in_the_end(app):
    queue = app.queue("q")

    @app.handler("q", retry=fixed(0, limit=2))
    def visit(message):
        raise Retry

    queue.cycle.add("ann")
    with working(app, monitor=True):
        eventually(lambda: queue.stats().dead == 1)
    assert queue.cycle.members() == []
    assert queue.dead.redrive().redriven == 1
    assert queue.cycle.members() == ["ann"]


def test_a_handler_that_returns_ends_the_visits(app):
    queue = app.queue("q")

    @app.handler("q")
    def visit(message):
        return Again() if message.key == "ann" else None

    queue.cycle.add("ann", "bob")
    with working(app):
        eventually(lambda: queue.cycle.members() == ["ann"])


def test_a_member_added_again_during_its_visit_is_visited_again(app):
    queue, visits = app.queue("q"), []

    @app.handler("q")
    def visit(message):
        visits.append(message.key)
        if len(visits) == 1:
            assert (queue.cycle.remove("ann"), queue.cycle.add("ann")) == (1, 1)

    queue.cycle.add("ann")
    with working(app):
        eventually(lambda: visits == ["ann", "ann"])
        eventually(lambda: queue.cycle.members() == [])
