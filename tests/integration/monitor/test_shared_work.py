"""Monitors share the queues: each leads some, and when one goes the others lead its share."""

import threading
from collections import Counter

import pytest
import redis

from reliq import ops
from reliq.model.keys import QueueKeys, monitors_until, new_owner
from reliq.transport.store import Store
from reliq_monitor.duties import COMMON
from tests.support.monitors import Monitors
from tests.support.turns import Monitor
from tests.support.workers import eventually

QUEUES = [f"queue-{number}" for number in range(60)]


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def processes(url, tmp_path):
    with Monitors(url, tmp_path) as processes:
        yield processes


@pytest.fixture
def queues(client):
    client.sadd("reliq:queues", *QUEUES)
    return [QueueKeys(name) for name in QUEUES]


class Threads:
    """Monitors in threads of this process."""

    def __init__(self, url):
        self._url = url
        self._running = []

    def start(self, interval=0.05):
        monitor, stopping = Monitor(Store(self._url), interval), threading.Event()
        thread = threading.Thread(target=monitor.run, args=(stopping,))
        self._running.append((monitor, stopping, thread))
        thread.start()
        return monitor

    def stop(self, monitor=None):
        for one, stopping, thread in self._running:
            if monitor in (None, one):
                stopping.set()
                thread.join()


@pytest.fixture
def threads(url):
    threads = Threads(url)
    yield threads
    threads.stop()


def abandon(app, keys):
    """A message of a consumer without a lease."""
    consumer = new_owner(connected=False)
    app.queue(keys.queue).send("held")
    app.store.call(ops.register(keys, consumer, 600.0))
    app.store.call(ops.claim(keys, consumer, 600.0, 1))
    app.store.call(ops.command("DEL", keys.lease(consumer)))


def all_led(monitors):
    """Whether each queue is led by exactly one of these monitors, and each of them leads some."""
    led = Counter(keys.queue for one in monitors for keys in one._whole._lookout.survey.queues)
    return led == Counter(QUEUES) and all(one.state().led_queues > 8 for one in monitors)


def test_three_monitors_lead_a_share_each_and_one_that_stops_leaves_it_to_the_others(client, queues, threads):
    monitors = [threads.start() for _ in range(3)]
    eventually(lambda: all_led(monitors), what="every queue has one leader")
    eventually(lambda: [one.state().members for one in monitors] == [3, 3, 3])
    for work in COMMON:
        eventually(lambda: sum(work in one._whole._lookout.survey.common for one in monitors) == 1)  # noqa: B023

    threads.stop(monitors[0])
    assert client.zscore(monitors_until("0"), monitors[0]._whole._membership.id) is None, "they need not miss it first"
    eventually(lambda: all_led(monitors[1:]), what="its share is led by the others")
    assert monitors[1].state().taken_over + monitors[2].state().taken_over >= 12


def test_every_duty_of_every_queue_is_done_by_someone(app, client, queues, threads):
    for _ in range(3):
        threads.start()
    for keys in queues:
        abandon(app, keys)
        app.queue(keys.queue).send("due", delay=0.3)
    app.schedules.add("tick", "1s", QUEUES[7])
    with app.batch(on_done=("reports", "done")):
        pass
    eventually(lambda: all(client.llen(keys.messages) >= 2 for keys in queues))
    eventually(lambda: app.queue("reports").stats().ready == 1)
    eventually(lambda: app.schedules.get("tick").fired >= 2)


def test_a_new_queue_is_led_by_one_of_them(app, client, queues, threads):
    monitors = [threads.start() for _ in range(3)]
    eventually(lambda: all_led(monitors))
    app.queue("new").send("due", delay=0.01)
    eventually(lambda: client.llen(QueueKeys("new").messages) == 1)
    eventually(lambda: sum(one.state().led_queues for one in monitors) == len(QUEUES) + 1)


def test_of_many_monitors_a_bounded_number_leads_and_a_spare_takes_the_place_of_one_that_goes(queues, threads):
    monitors = [threads.start() for _ in range(10)]
    eventually(
        lambda: (
            sum(one.state().leading for one in monitors) == 8 and sum(one.state().led_queues for one in monitors) == 60
        )
    )
    spares = [one for one in monitors if not one.state().leading]
    assert [one.state().led_queues for one in spares] == [0, 0]
    threads.stop(next(one for one in monitors if one.state().leading))
    eventually(lambda: sum(one.state().leading for one in spares) == 1)
    eventually(lambda: sum(one.state().led_queues for one in monitors[1:]) == 60)


@pytest.mark.parametrize("end", ["killed", "paused"])
def test_the_share_of_one_that_is_killed_or_paused_is_led_by_the_others(app, client, queues, processes, end):
    """How soon, bench/handover.py measures."""
    for _ in range(3):
        processes.start()
    eventually(lambda: processes.led() == len(QUEUES) and min(processes.shares()) > 8, timeout=60)
    victim = processes.kill(0) if end == "killed" else processes.pause(0)
    for keys in queues:
        abandon(app, keys)
    eventually(lambda: all(client.llen(keys.messages) == 1 for keys in queues))
    if end == "paused":
        processes.resume(victim)
        eventually(lambda: processes.led() == len(QUEUES) and min(processes.shares()) > 8)
        for keys in queues:
            abandon(app, keys)
        eventually(lambda: all(client.llen(keys.messages) == 2 for keys in queues))
        for keys in queues:
            assert app.queue(keys.queue).stats().counters["reclaimed"] == 2


def test_a_monitor_that_was_missed_judges_nobody_by_what_it_saw_before(app, client, queues, threads):
    """A worker was absent when it looked last; meanwhile the others led, and the worker was there."""
    monitor = threads.start()
    eventually(lambda: monitor.state().leading)
    absences = monitor._whole._liveness._absences
    absences._absent["queue-1"] = {"c1": None}
    app.store.call(ops.resign("0", monitor._whole._membership.id))
    eventually(lambda: absences._absent.get("queue-1") != {"c1": None})


def test_no_neighbour_of_a_poison_message_is_charged_by_a_monitor_that_leads_another_queue(app, client, queues):
    """One process held a message in each of two queues, which two monitors lead: neither was alone."""
    consumer = new_owner()
    for keys in queues[:2]:
        app.queue(keys.queue).send("x")
        app.store.call(ops.register(keys, consumer, 600.0))
        app.store.call(ops.claim(keys, consumer, 600.0, 1))
        app.store.call(ops.command("DEL", keys.lease(consumer)))
    for keys in queues[:2]:
        monitor = Monitor(Store(app.url))
        monitor._whole._lookout.names = QUEUES
        monitor._whole._membership.share = lambda queues, led=keys.queue: [led]  # type: ignore[method-assign, misc]
        monitor._whole._lookout.share_out()
        assert monitor.state().led_queues == 0
        assert monitor.scan().reclaimed == 1
    for keys in queues[:2]:
        with app.queue(keys.queue).consumer() as other:
            (message,) = other.claim()
            assert (message.redelivered, message.deliveries) == (True, 0)
            other.ack(message)


def test_a_message_that_was_alone_in_its_process_is_charged_whoever_leads(app, client, queues):
    abandon(app, queues[0])
    monitor = Monitor(Store(app.url))
    monitor._whole._lookout.names = QUEUES
    monitor._whole._membership.share = lambda queues: [QUEUES[0]]  # type: ignore[method-assign]
    monitor._whole._lookout.share_out()
    assert monitor.scan().reclaimed == 1
    (message,) = app.queue(QUEUES[0]).consumer().claim()
    assert message.deliveries == 1


def test_all_die_and_leave_nothing_that_the_next_one_waits_for(app, client, queues, processes):
    processes.start()
    eventually(lambda: processes.led() == len(QUEUES))
    processes.kill(0)
    keys = queues[3]
    abandon(app, keys)
    processes.start()
    eventually(lambda: client.llen(keys.messages) == 1)
