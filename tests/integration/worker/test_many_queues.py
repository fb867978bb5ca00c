"""A monitor of many queues: what it asks of Redis does not grow with those that have nothing to do."""

import itertools

import pytest
import redis

from reliq import ops
from reliq.features.schedules.duty import Schedules
from reliq.model.keys import QueueKeys, new_owner
from reliq.transport.store import Store
from tests.support.turns import Monitor
from tests.support.workers import eventually

QUEUES = 1_000
BUSY = ("queue-7", "queue-500", "queue-993")


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def monitor(url, server):
    server.sadd("reliq:queues", *(f"queue-{number}" for number in range(QUEUES)))
    monitor = Monitor(Store(url))
    monitor.scan()
    return monitor


def abandoned(app, queue):
    """A message held by a consumer with an expired lease."""
    keys, consumer = QueueKeys(queue), new_owner(connected=False)
    app.queue(queue).send("x")
    app.store.call(ops.register(keys, consumer, 600.0))
    app.store.call(ops.claim(keys, consumer, 600.0, 1))
    app.store.call(ops.command("DEL", keys.lease(consumer)))


def asked(server):
    """Calls by command; those inside of scripts too."""
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in server.info("commandstats").items()}


def test_a_thousand_idle_queues_are_asked_about_a_hundred_a_call(monitor, server):
    for key in server.scan_iter("reliq:*:consumers"):  # of the tests before this one
        server.delete(key)
    server.config_resetstat()
    monitor.scan()
    monitor.promote()
    monitor.finish_staged()
    monitor.ask_undecided()
    monitor.tidy()
    calls = asked(server)
    assert calls.pop("evalsha") <= 8 * (QUEUES / 100) + 2  # a key in each; two of them for jobs of several queues
    assert sum(calls.values()) <= 100


def test_schedules_of_one_queue_ask_nothing_about_the_others(app, monitor, server):
    app.schedules.add("s", "1h", "queue-7")
    monitor.scan()
    server.config_resetstat()
    monitor.scan()
    calls = asked(server)
    assert calls["evalsha"] <= QUEUES / 100 + 2  # as without schedules: consumers and ticks are one question
    monitor.perform(Schedules)
    server.config_resetstat()
    monitor._whole._rota.duty_of(Schedules)._next_look = 0.0
    monitor.perform(Schedules)
    assert asked(server)["evalsha"] == 1


def test_the_few_that_hold_something_abandoned_get_it_back(app, monitor):
    for queue in BUSY:
        abandoned(app, queue)
    report = monitor.scan()
    assert (report.consumers, report.vanished, report.reclaimed) == (3, 3, 3)
    assert [app.queue(queue).stats().ready for queue in BUSY] == [1, 1, 1]
    assert monitor.scan().consumers == 0


def test_the_few_with_something_due_are_promoted_and_the_next_one_is_known(app, monitor):
    for queue in BUSY:
        app.queue(queue).send("x", delay=0.001)
    promoted = itertools.accumulate(monitor.promote()[0] for _ in itertools.count())
    eventually(lambda: next(promoted) == len(BUSY))
    assert monitor.promote() == (0, None)
    app.queue("queue-8").send("far ahead", delay=3600)
    assert monitor.promote() == (0, None)
    assert [app.queue(queue).stats().ready for queue in BUSY] == [1, 1, 1]


def test_consumers_are_asked_for_once_a_queue_however_many_there_are(app, monitor, server):
    keys = QueueKeys("queue-3")
    for _ in range(200):
        app.store.call(ops.register(keys, new_owner(connected=False), 600.0))
    server.config_resetstat()
    report = monitor.scan()
    calls = asked(server)
    assert (report.consumers, report.vanished) == (200, 0)
    assert (calls["smembers"], calls["mget"]) == (2, 1)  # all queues, and the consumers of one


def test_silent_producers_of_every_queue_are_forgotten_and_the_others_not(app, monitor, server):
    """More of them in one hash than a page has."""
    now = app.store.call(ops.server_time())
    large = QueueKeys("queue-5").producers
    server.hset(large, mapping={f"old-{number}": f"1 {now - 7_200_000}" for number in range(2_000)})
    server.hset(large, "young", f"1 {now}")
    for queue in BUSY:
        server.hset(QueueKeys(queue).producers, mapping={"old": f"9 {now - 7_200_000}", "young": f"9 {now}"})
    monitor.tidy()
    assert server.hkeys(large) == [b"young"]
    assert [server.hkeys(QueueKeys(queue).producers) for queue in BUSY] == [[b"young"]] * 3
