"""How long a message of a vanished holder was away: from when the holder was last there until it was back."""

import threading
import time
from types import SimpleNamespace

import pytest
import redis

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys, connection_name
from reliq.observability.histograms import RECOVERY, Measurements
from reliq.transport.store import Store
from reliq_monitor.liveness import SETTLED, Liveness
from tests.support.turns import Monitor
from tests.support.workers import eventually

NAMED = frozenset({connection_name("cabc")})
NOBODY = frozenset[str]()


def recoveries(measurements):
    return {labels: (sum(counts), total) for family, labels, counts, total in measurements.read() if family is RECOVERY}


def abandoned(app, url, messages=3, lease=1.0):
    """A consumer without its connection, as after kill -9."""
    app.queue("orders").send_many(["x"] * messages)
    consumer = reliq.Reliq(url).queue("orders").consumer(lease=lease)
    assert len(consumer.claim(limit=messages)) == messages
    consumer._first._connections.main.close()


def test_an_expired_lease_counts_from_its_deadline(app, url):
    abandoned(app, url)
    keys = QueueKeys("orders")
    (consumer,) = app.store.call(ops.members(keys.consumers))
    now = app.store.call(ops.server_time())
    app.store.call(ops.command("SET", keys.lease(consumer), now - 4000))
    measurements = Measurements()
    Monitor(Store(url), measurements=measurements).scan()
    messages, seconds = recoveries(measurements)["orders",]
    assert messages == 3
    assert seconds / 3 == pytest.approx(5.0, abs=1.0)


def test_a_vanished_connection_counts_from_when_it_was_last_seen(app, url):
    measurements = Measurements()
    monitor = Monitor(Store(url), measurements=measurements, reconnect_grace=0)
    monitor.scan()
    eventually(
        lambda: monitor._whole._calls.at_node.connected_at + SETTLED < time.monotonic(),
        what="its looks at connections count",
    )
    abandoned(app, url, lease=600.0)

    def back():
        monitor.scan()
        return recoveries(measurements)

    messages, seconds = eventually(back)["orders",]
    assert messages == 3
    assert seconds / 3 < 10.0  # its lease had ten minutes to run


def test_nothing_is_measured_when_nothing_came_back(app, url):
    measurements = Measurements()
    with app.queue("orders").consumer() as consumer:
        app.queue("orders").send("x")
        consumer.claim()
        Monitor(Store(url), measurements=measurements).scan()
        assert recoveries(measurements) == {}


@pytest.fixture
def liveness(monkeypatch):
    for module in ("liveness", "absences", "clock_jumps"):
        monkeypatch.setattr(f"reliq_monitor.{module}.time", SimpleNamespace(monotonic=lambda: 100.0))
    return Liveness(reconnect_grace=0)


def look(liveness, names, deadline, now):
    liveness.connections(names, 1.0)
    return [(one.known_dead, one.since) for one in liveness.look("orders", [("cabc", deadline)], now)]


def test_the_last_time_it_was_there_is_remembered_over_looks(liveness):
    assert look(liveness, NAMED, 9000, 1000) == []
    assert look(liveness, NAMED, 9000, 1500) == []
    assert look(liveness, NOBODY, 9000, 2000) == []
    assert look(liveness, NOBODY, 9000, 2500) == [(True, 1500)]


def test_one_that_was_never_there_counts_from_the_first_look(liveness):
    assert look(liveness, NOBODY, 9000, 1000) == []
    assert look(liveness, NOBODY, 9000, 1500) == [(True, 1000)]


def test_the_time_away_of_a_holder_that_came_back_begins_anew(liveness):
    look(liveness, NOBODY, 9000, 1000)
    look(liveness, NAMED, 9000, 1500)
    look(liveness, NOBODY, 9000, 2000)
    assert look(liveness, NOBODY, 9000, 2500) == [(True, 1500)]


def test_where_connections_are_not_told_the_deadline_counts(liveness):
    assert look(liveness, None, 2000, 1000) == []
    assert look(liveness, None, 2000, 2500) == [(False, 2000)]


def test_a_monitor_works_on_while_redis_is_full(app, url, redis_server):
    abandoned(app, url, lease=1.0)
    measurements, stopping = Measurements(), threading.Event()
    monitor = threading.Thread(target=Monitor(Store(url), 0.05, measurements).run, args=(stopping,))
    with redis.Redis(port=redis_server.port) as client:
        client.config_set("maxmemory", "1")
        monitor.start()
        try:
            eventually(lambda: recoveries(measurements), what="it takes back what the vanished consumer held")
        finally:
            client.config_set("maxmemory", "0")
            stopping.set()
            monitor.join()
    assert recoveries(measurements)["orders",][0] == 3
