"""A monitor of idle queues asks nothing about them, and acts as soon as there is something to do."""

import time

import pytest
import redis

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys, new_owner, partition_queue
from reliq.transport.notices import Notices
from reliq.transport.store import Store
from reliq_monitor import known, promote
from reliq_monitor.duties import DUTIES
from reliq_monitor.retention import SilentProducers
from tests.support.turns import Monitor, running
from tests.support.workers import eventually

NEVER = 1000.0


def knows(monitor, app):
    """Whether it has read what it is to know of all queues."""
    names = set(app.queues())
    return lambda: all(monitor._whole._calls.known.get(QueueKeys(name).delayed) is False for name in names)


@pytest.fixture
def slow(monkeypatch):
    """Only what the server tells makes a monitor read again."""
    for module in (known, promote):
        monkeypatch.setattr(module, "SLOW_LOOK", NEVER)


def commands_of_looks(app, client, slow, count):
    for number in range(count):
        app.queue(f"q{number}").send("x")
    monitor = Monitor(Store(app.url), 0.1)
    node = monitor._whole
    node._calls.begin_notices()
    duties = [duty for duty in DUTIES if duty is not SilentProducers]  # it looks at each queue every ten minutes

    def look():
        node._calls.take_notices()
        node.look()
        for duty in duties:
            monitor.perform(duty)

    for _ in range(3):  # it is told of what it has written itself
        look()
    before = client.info("stats")["total_commands_processed"]
    look()
    return client.info("stats")["total_commands_processed"] - before


def test_idle_queues_cost_a_look_no_command(app, client, slow):
    few = commands_of_looks(app, client, slow, 2)
    client.flushall()
    assert commands_of_looks(app, client, slow, 300) == few


def test_idle_partitions_cost_a_look_no_command(app, client, slow):
    app.queue("parts").configure(partitions=2)
    few = commands_of_looks(app, client, slow, 2)
    client.flushall()
    app.queue("parts").configure(partitions=40)
    assert commands_of_looks(app, client, slow, 2) == few


def delayed(app, queue):
    queue.send("x", delay=0.2)
    return lambda: queue.stats().ready == 1


def delayed_sooner(app, queue):
    """Than one that was the first one."""
    queue.send("later", delay=3600)
    time.sleep(0.3)
    queue.send("x", delay=0.2)
    return lambda: queue.stats().ready == 1


def vanished(app, queue):
    queue.send("x")
    keys, one = QueueKeys(queue.name), new_owner(connected=False)
    app.store.call(ops.register(keys, one, 0.3))
    app.store.call(ops.claim(keys, one, 0.3, 1))
    return lambda: queue.stats().ready == 1


def dead_to_another(app, queue):
    queue.configure(dead_to="graves")
    queue.send("x")
    with queue.consumer() as consumer:
        consumer.dead(*consumer.claim(), reason="wrong")
    return lambda: app.queue("graves").stats().ready == 1


def scheduled(app, queue):
    app.schedules.add("often", "1s", queue.name, "x")
    return lambda: queue.stats().ready >= 1


def new_queue(app, queue):
    return delayed(app, app.queue("a-new-one"))


@pytest.mark.parametrize(
    "act", [delayed, delayed_sooner, vanished, dead_to_another, scheduled, new_queue], ids=lambda act: act.__name__
)
def test_what_there_is_to_do_is_done_though_the_monitor_knew_of_nothing(app, url, slow, act):
    queue = app.queue("q")
    queue.send("first")
    queue.purge()
    with running(url) as monitor:
        eventually(knows(monitor, app))
        assert eventually(act(app, queue), timeout=10)


def test_a_lost_notice_costs_the_slow_look(app, url, monkeypatch):
    monkeypatch.setattr(Notices, "take", lambda self: None)
    for module in (known, promote):
        monkeypatch.setattr(module, "SLOW_LOOK", 1.0)
    queue = app.queue("q")
    queue.send("first")
    queue.purge()
    with running(url) as monitor:
        eventually(knows(monitor, app))
        assert eventually(delayed(app, queue), timeout=10)


def test_strays_of_a_partition_are_brought_home_though_none_was_known(app, url, slow):
    queue = app.queue("parts")
    queue.configure(partitions=2)
    for number in range(20):
        queue.send(number, key=f"key-{number}", delay=1)
    with running(url) as monitor:
        eventually(lambda: monitor._whole._calls.known.get(QueueKeys(partition_queue("parts", "1")).waiting) is False)
        queue.configure(partitions=5)
        eventually(lambda: queue.stats().ready == 20)
        eventually(lambda: not queue.partitions().moving)


def test_connections_are_listed_again_only_when_one_was_closed():
    def listed():
        return client.info("commandstats").get("cmdstat_client|list", {"calls": 0})["calls"]

    def listed_by(looks):
        before = listed()
        for _ in range(looks):
            node.look()
        return listed() - before

    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client, reliq.Reliq(server.url) as app:
        node = Monitor(Store(server.url), 0.1)._whole
        with app.queue("q").consumer():
            assert listed_by(3) >= 1
            assert listed_by(20) == 0
            other = client.connection_pool.make_connection()
            other.connect()
            assert listed_by(20) == 0
            other.disconnect()
            assert listed_by(20) == 1
