"""A living worker keeps its messages through what its connections and Redis go through; a dead one does not."""

import contextlib
import socket
import threading
import time

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from reliq_monitor.liveness import SETTLED
from tests.support.proxy import Proxy
from tests.support.workers import eventually, working


@contextlib.contextmanager
def monitoring(url, **options):
    thread = MonitorThread(Store(url), **options)
    thread.start()
    try:
        yield thread.monitor
    finally:
        thread.stop()


def connections_count(monitor):
    """Wait until an absence from the list of connections counts."""
    eventually(lambda: 0 < monitor._whole._calls.at_node.connected_at < time.monotonic() - SETTLED)


def cut(proxy):
    """Reset every connection, and each new one at its first word."""
    proxy.request = lambda data: None
    for pair in list(proxy._pairs):
        for one in pair:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def slow_handler(url, runs, release):
    app = reliq.Reliq(url)

    @app.handler("orders")
    def handle(message):
        runs.append(message.id)
        release.wait(30)

    return app


def test_a_worker_whose_connections_are_reset_and_refused_for_two_seconds_keeps_its_message(redis_server, url):
    runs: list[str] = []
    release = threading.Event()
    with Proxy(redis_server.port) as proxy, monitoring(url) as monitor:
        app = slow_handler(proxy.url, runs, release)
        direct = reliq.Reliq(url)
        direct.queue("orders").send("x")
        with working(app, threads=2):
            eventually(lambda: runs)
            connections_count(monitor)
            cut(proxy)
            time.sleep(2.0)
            proxy.request = lambda data: data
            time.sleep(1.5)
            counters = direct.queue("orders").stats().counters
            release.set()
            eventually(lambda: direct.queue("orders").stats().counters.get("acked") == 1)
        assert len(runs) == 1
        assert counters.get("reclaimed", 0) == 0


def test_an_outage_that_is_longer_than_the_leases_robs_nobody(redis_server, url):
    """The monitor is back first, and its first look finds every lease over."""
    runs: list[str] = []
    release = threading.Event()
    direct = reliq.Reliq(url)
    with Proxy(redis_server.port) as its_own, Proxy(redis_server.port) as proxy, monitoring(its_own.url):
        app = slow_handler(proxy.url, runs, release)
        direct.queue("orders").send_many(["x"] * 4)
        with working(app, threads=4, lease="1s"):
            eventually(lambda: len(runs) == 4)
            cut(its_own), cut(proxy)
            time.sleep(2.0)
            its_own.request = lambda data: data
            time.sleep(1.5)
            proxy.request = lambda data: data
            time.sleep(1.5)
            counters = direct.queue("orders").stats().counters
            release.set()
            eventually(lambda: direct.queue("orders").stats().counters.get("acked") == 4)
        assert len(runs) == 4
        assert counters.get("reclaimed", 0) == 0


def test_a_message_of_a_worker_that_is_gone_comes_back_after_the_grace_and_not_after_its_lease(app, url):
    app.queue("orders").send("x")
    with monitoring(url, reconnect_grace="1s") as monitor:
        eventually(lambda: monitor.state().leading)
        consumer = reliq.Reliq(url).queue("orders").consumer(lease="10m")
        assert len(consumer.claim()) == 1
        connections_count(monitor)
        consumer._first._connections.main.close()
        gone = time.monotonic()
        keys = QueueKeys("orders")
        with reliq.Reliq(url).queue("orders").consumer() as other:
            assert other.claim(wait=30)
        assert time.monotonic() - gone > 0.9
        assert app.store.call(ops.command("HGETALL", keys.trying)) == []


def test_a_monitor_whose_redis_is_away_tries_no_more_often_than_it_scans():
    """It once tried again without any pause, and kept half a core busy for as long as Redis was away."""
    store, tries = Store("redis://127.0.0.1:1/0"), []
    make = store.new_connection

    def counted():
        tries.append(time.monotonic())
        return make()

    store.new_connection = counted
    thread = MonitorThread(store, scan_interval=0.1)
    thread.start()
    try:
        eventually(lambda: len(tries) >= 8)
    finally:
        thread.stop()
    assert tries[7] - tries[0] >= 7 * 0.1
