"""Partitions on a real Redis Cluster of three masters: each node has its share, and one that is away stops no other."""

import os
import signal
from collections import Counter

import pytest

import reliq
from reliq import ops
from reliq.errors import RedisUnavailable
from reliq.model.keys import TOPICS, QueueKeys
from reliq.model.partitions import bucket_of_key, home_by_bucket
from reliq.protocol.stats import stats_of
from reliq_monitor import MonitorThread
from tests.support.cluster import Cluster
from tests.support.workers import eventually, working

COUNT = 12


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def app(cluster):
    with reliq.Reliq(cluster.url, send_timeout=1) as app:
        yield app


def names_of(app: reliq.Reliq, queue: str) -> list[str]:
    return app.store.call(ops.layout(QueueKeys(queue))).every(queue)


def ready_by_node(app: reliq.Reliq, cluster: Cluster, queue: str) -> Counter[int]:
    counts: Counter[int] = Counter()
    for name in names_of(app, queue):
        counts[cluster.master_of(name).port] += app.store.run(stats_of(QueueKeys(name))).ready
    return counts


def test_each_node_has_its_share_of_the_partitions_and_of_the_messages(app, cluster):
    orders = app.queue("even")
    orders.configure(partitions=COUNT)
    orders.send_many(["body"] * 3000)
    orders.send_many([reliq.NewMessage("body", key=f"k{number}") for number in range(3000)])
    shares = ready_by_node(app, cluster, "even")
    assert len(shares) == 3
    assert all(abs(count - 2000) <= 200 for count in shares.values()), shares


def test_workers_and_monitors_serve_all_nodes_while_the_number_changes(app, cluster):
    orders = app.queue("served")
    orders.configure(partitions=3)
    handled = []
    app.handler("served")(lambda message: handled.append(message.id))
    sent = orders.send_many([reliq.NewMessage("body", key=f"k{number % 50}") for number in range(500)])
    monitor = MonitorThread(reliq.Reliq(cluster.url).store, reconnect_grace=0)
    monitor.start()
    try:
        with working(app):
            orders.configure(partitions=COUNT)
            sent += orders.send_many([reliq.NewMessage("body", key=f"k{number % 50}") for number in range(500)])
            eventually(lambda: len(handled) == 1000, timeout=60)
            eventually(lambda: not orders.partitions().moving, timeout=60)
    finally:
        monitor.stop()
    assert sorted(handled) == sorted(sent)


def test_messages_without_a_key_avoid_a_node_that_is_away_and_keyed_ones_say_so(app, cluster):
    orders = app.queue("away")
    orders.configure(partitions=COUNT)
    names = names_of(app, "away")
    app.subscribe("away", "to.away")
    orders.send_many(["body"] * COUNT * 100)
    kept = [cluster.master_of("away"), cluster.master_of(TOPICS)]
    victim = next(one for one in cluster.masters() if one not in kept)
    gone = {place for place, name in enumerate(names) if cluster.master_of(name) is victim}
    there = [QueueKeys(name) for place, name in enumerate(names) if place not in gone]
    before = sum(app.store.run(stats_of(keys)).ready for keys in there)
    replicas = [one for one in cluster.servers if one not in cluster.masters()]
    for one in replicas:  # so that none of them takes over
        os.kill(one.pid, signal.SIGSTOP)
    try:
        victim.kill()
        key = next(key for key in map(str, range(1000)) if home_by_bucket(COUNT)[bucket_of_key(key)] in gone)
        # A new application: what `app` sends over a connection that has just ended may have been carried out.
        with reliq.Reliq(cluster.url, send_timeout=1) as producer:
            for _ in range(2 * COUNT):
                producer.queue("away").send("body")
                producer.publish("to.away", "body")
                producer.publish("to.away", "x" * 5_000)
            with pytest.raises(RedisUnavailable):
                producer.queue("away").send("body", key=key)
        assert sum(app.store.run(stats_of(keys)).ready for keys in there) - before == 6 * COUNT
    finally:
        for one in replicas:
            os.kill(one.pid, signal.SIGCONT)
