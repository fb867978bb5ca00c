"""The monitor's duty for schedules: on time, once a tick, by its policy after an absence."""

import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from reliq.model.keys import QueueKeys
from reliq.observability.histograms import LATENESS, Measurements
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from tests.integration.client.test_schedules import make_due
from tests.support.turns import Monitor
from tests.support.workers import eventually

KEYS = QueueKeys("q")


@pytest.fixture
def monitor(store):
    return Monitor(store)


@pytest.fixture
def running(url):
    """A monitor that runs in a thread; its measurements."""
    store, measurements = Store(url), Measurements()
    thread = MonitorThread(store, measurements=measurements)
    thread.start()
    yield measurements
    thread.stop()
    store.close()


def ids(app):
    with app.queue("q").consumer() as consumer:
        found = []
        while messages := consumer.claim(limit=1000):
            found += [message.id for message in messages]
            for message in messages:
                consumer.ack(message)
    return found


def test_ticks_are_sent_at_their_times(app, running):
    for number in range(50):
        app.schedules.add(f"s-{number}", "1s", "q")
    eventually(lambda: app.schedules.get("s-49").fired >= 4)
    found = ids(app)
    assert len(found) == len(set(found))
    late = {labels: counts for family, labels, counts, _ in running.read() if family is LATENESS}[("q",)]
    on_time = sum(count for count, bound in zip(late, LATENESS.bounds, strict=False) if bound <= 0.5)
    assert on_time >= 0.9 * sum(late)


def test_two_monitors_send_each_tick_once(app, url):
    """Both act as leaders, as after a leader that was paused: the scripts decide, not the leader's key."""
    for number in range(20):
        app.schedules.add(f"s-{number}", "1s", "q")
    stop, sent = time.monotonic() + 4, []

    def lead():
        store = Store(url)
        one = Monitor(store)
        while time.monotonic() < stop:
            sent.append(one.send_ticks())
            time.sleep(0.001)
        store.close()

    threads = [threading.Thread(target=lead) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = ids(app)
    assert len(found) == len(set(found)) == sum(sent)
    by_schedule = {number: sorted(one for one in found if one.startswith(f"s-{number}@")) for number in range(20)}
    assert {len(ticks) for ticks in by_schedule.values()} <= {3, 4, 5}
    for ticks in by_schedule.values():
        seconds = [int(one[-3:-1]) for one in ticks]
        assert all((later - earlier) % 60 == 1 for earlier, later in pairwise(seconds))


@pytest.mark.parametrize(("policy", "sent"), [("latest", 1), ("all", 5), ("none", 0)])
def test_after_an_absence_the_policy_decides(app, monitor, client, policy, sent):
    start = datetime.now(UTC) - timedelta(hours=4, minutes=30)  # five ticks ago
    app.schedules.add("s", "1h", "q", catch_up=policy, start=start)
    make_due(client, "s", ago=timedelta(hours=4))
    assert monitor.send_ticks() == sent
    found = app.schedules.get("s")
    assert (found.fired, found.missed) == (sent, 5 - sent)
    assert monitor.send_ticks() == 0
    assert len(ids(app)) == sent


def test_a_full_queue_gets_the_tick_when_it_has_room(app, running, client):
    app.queue("q").send("x")
    app.queue("q").configure(max_length=1)
    app.schedules.add("s", "1h", "q")
    tick = make_due(client, "s")
    eventually(lambda: app.queue("q").stats().counters.get("rejected"))
    assert app.schedules.get("s").fired == 0
    assert len(ids(app)) == 1
    (identity,) = eventually(lambda: ids(app))
    assert identity.startswith("s@20")
    assert app.schedules.get("s").last_tick.timestamp() == tick / 1000


def test_more_missed_ticks_than_the_queue_may_have_come_one_after_another(app, running, client):
    """As a whole they would never have room."""
    app.queue("q").configure(max_length=2)
    start = datetime.now(UTC) - timedelta(hours=4, minutes=30)  # five ticks ago
    app.schedules.add("s", "1h", "q", catch_up="all", start=start)
    make_due(client, "s", ago=timedelta(hours=4))
    eventually(lambda: app.queue("q").stats().ready == 2)
    found = ids(app)
    eventually(lambda: found.extend(ids(app)) or len(found) == 5)
    assert found == sorted(set(found))
    eventually(lambda: (app.schedules.get("s").fired, app.schedules.get("s").missed) == (5, 0))


def test_a_schedule_that_cannot_be_read_stops_no_other(app, monitor, client):
    for name in ("bad", "good"):
        app.schedules.add(name, "1h", "q")
        make_due(client, name)
    client.hset(KEYS.schedules, "bad", "no JSON")
    assert monitor.send_ticks() == 1
    assert monitor.state().failing == {("schedules", "q")}
    assert monitor.state().failures["schedules"] == 1
    assert client.zscore(KEYS.ticks, "bad") > time.time() * 1000 + 10_000  # not looked at again at once
    assert monitor.send_ticks() == 0


def test_a_foreign_key_stops_no_other_queue(app, monitor, client):
    for name in ("q", "r", "s"):
        app.schedules.add(name, "1h", name)
        make_due(client, name, name)
    client.delete(KEYS.schedule_states)
    client.set(KEYS.schedule_states, "foreign")
    assert monitor.send_ticks() == 2
    assert ("schedules", "q") in monitor.state().failing


def test_a_schedule_that_is_changed_within_the_last_seconds_is_sent_as_changed(app, running):
    app.schedules.add("s", "2s", "q", "old")
    eventually(lambda: app.schedules.get("s").fired)
    app.schedules.add("s", "2s", "q", "new")
    fired = app.schedules.get("s").fired
    eventually(lambda: app.schedules.get("s").fired > fired)
    with app.queue("q").consumer() as consumer:
        bodies = [message.body for message in consumer.claim(limit=10)]
    assert bodies[-1] == b"new"


def test_a_thousand_schedules_of_a_minute_are_sent_in_few_calls(app, monitor, client, url):
    steps = app.schedules._steps
    definitions = [steps.define(f"s-{number}", "1m", "q", "x", {}) for number in range(1000)]
    app.store.run(steps.put(definitions))
    for one in definitions:
        make_due(client, one.name)
    client.config_resetstat()
    while app.queue("q").stats().ready < 1000:
        monitor.send_ticks()
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 60
