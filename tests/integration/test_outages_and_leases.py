"""A living worker keeps its messages through what its connections and Redis go through; a dead one does not."""

import contextlib
import os
import signal
import threading
import time

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.keys import QueueKeys
from reliq.store import Store
from reliq_monitor import MonitorThread
from tests.proxy import Proxy
from tests.workers import eventually, working


@contextlib.contextmanager
def monitoring(url, **options):
    thread = MonitorThread(Store(url), **options)
    thread.start()
    try:
        yield thread.monitor
    finally:
        thread.stop()


def slow_handler(url, runs, release):
    app = reliq.Reliq(url)

    @app.handler("orders")
    def handle(message):
        runs.append(message.id)
        release.wait(30)

    return app


def test_a_worker_whose_connections_are_reset_and_refused_for_two_seconds_keeps_its_message(redis_server, url):
    runs, release = [], threading.Event()
    with Proxy(redis_server.port) as proxy, monitoring(url):
        app = slow_handler(proxy.url, runs, release)
        direct = reliq.Reliq(url)
        direct.queue("orders").send("x")
        with working(app, threads=2):
            eventually(lambda: runs)
            time.sleep(2.0)  # the monitor has seen its connections
            proxy.request = lambda data: None  # every connection is cut at its next word
            for client, server in list(proxy._pairs):
                client.close(), server.close()
            time.sleep(2.0)
            proxy.request = lambda data: data
            time.sleep(1.5)
            counters = direct.queue("orders").stats().counters
            release.set()
            eventually(lambda: direct.queue("orders").stats().counters.get("acked") == 1)
        assert len(runs) == 1
        assert counters.get("reclaimed", 0) == 0


def test_an_outage_of_redis_that_is_longer_than_the_leases_robs_nobody():
    """Redis hangs for two leases: the first look afterwards finds every lease over."""
    runs, release = [], threading.Event()
    with EmbeddedRedis() as server, monitoring(server.url):
        app = slow_handler(server.url, runs, release)
        app.queue("orders").send_many(["x"] * 4)
        with working(app, threads=4, lease="1s"):
            eventually(lambda: len(runs) == 4)
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(server.pid, signal.SIGCONT)
            time.sleep(2.0)
            release.set()
            eventually(lambda: app.queue("orders").stats().counters.get("acked") == 4)
        assert len(runs) == 4
        assert app.queue("orders").stats().counters.get("reclaimed", 0) == 0


def test_a_message_of_a_worker_that_is_gone_comes_back_after_the_grace_and_not_after_its_lease(app, url):
    app.queue("orders").send("x")
    with monitoring(url, reconnect_grace="1s") as monitor:
        eventually(lambda: monitor.leading)
        consumer = reliq.Reliq(url).queue("orders").consumer(lease="10m")
        assert len(consumer.claim()) == 1
        time.sleep(1.6)  # the monitor has seen its connection
        consumer._link.close()
        gone = time.monotonic()
        keys = QueueKeys("orders")
        with reliq.Reliq(url).queue("orders").consumer() as other:
            assert other.claim(wait=10)
        assert 0.9 < time.monotonic() - gone < 4
        assert app.store.call(ops.command("HGETALL", keys.trying)) == []
