"""Monitors of a Redis Cluster: they share the queues of each node, and a node that is away stops nothing elsewhere."""

import contextlib
import os
import signal
import time

import pytest
import redis

import reliq
from reliq import NewMessage, ops
from reliq.model.keys import QUEUES as QUEUES_KEY
from reliq.model.keys import QueueKeys, monitors_since, monitors_until, new_owner
from reliq.ops.topology import slot_of
from reliq_monitor import known, membership
from reliq_monitor.duties import COMMON, DUTIES
from tests.integration.client.test_cluster import (  # fixtures
    app,  # noqa: F401
    cluster_url,  # noqa: F401
    complete,
    nodes,  # noqa: F401
)
from tests.support.cluster import Cluster
from tests.support.turns import running
from tests.support.workers import eventually

QUEUES = [f"q{number}" for number in range(30)]
_STEP = 16384 // 3 + 1


def node_of(name):
    """The node of a queue, or of another key, by its place."""
    return slot_of(f"{{{name}}}") // _STEP


HOME = slot_of(QUEUES_KEY) // _STEP  #: the node that knows which queues there are


@pytest.fixture
def monitors(cluster_url, app):  # noqa: F811
    for name in QUEUES:
        app.queue(name).send("x", delay=3600)
    with running(cluster_url) as one, running(cluster_url) as other:
        yield [one, other]


@contextlib.contextmanager
def hanging(nodes, place):  # noqa: F811
    os.kill(nodes[place].pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(nodes[place].pid, signal.SIGCONT)
        eventually(lambda: complete(nodes), timeout=60)


def led(monitors):
    return [{keys.queue for part in one._nodes.parts for keys in part._lookout.survey.queues} for one in monitors]


def all_led(monitors):
    mine, yours = led(monitors)
    return mine | yours == set(QUEUES) and not mine & yours and min(len(mine), len(yours)) >= 9


def leaders_of(work, monitors):
    return sum(work in part._lookout.survey.common for one in monitors for part in one._nodes.parts)


def test_monitors_share_the_queues_of_each_node(app, monitors):  # noqa: F811
    eventually(lambda: all_led(monitors), what="every queue has one leader")
    by_node = [{name for name in QUEUES if node_of(name) == place} for place in range(3)]
    # By chance, which is in their names, a monitor may have none of the ten queues of a node.
    eventually(lambda: sum(all(theirs & mine for mine in led(monitors)) for theirs in by_node) >= 2)
    for work in COMMON:
        eventually(lambda: leaders_of(work, monitors) == 1)  # noqa: B023
    for monitor in monitors:
        assert {"queues", *(duty.name for duty in DUTIES)} <= set(monitor.state().failures), "they start at 0"
    with app.batch(on_done=("reports", "done")) as batch:
        for name in QUEUES:
            batch.send(name, "x", delay=0.1)
    for name in QUEUES:
        with app.queue(name).consumer() as consumer:
            consumer.ack(*consumer.claim(wait=10))
    eventually(lambda: app.queue("reports").stats().ready == 1)


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(HOME, id="with the names of the queues"),
        pytest.param((HOME + 1) % 3, id="another one", marks=pytest.mark.slow),
        pytest.param((HOME + 2) % 3, id="the third one", marks=pytest.mark.slow),
    ],
)
def test_a_node_that_hangs_delays_no_duty_of_the_others(app, monitors, nodes, place):  # noqa: F811
    eventually(lambda: all_led(monitors))
    others = [name for name in QUEUES if node_of(name) != place]
    clients = {name: redis.Redis(port=nodes[node_of(name)].port) for name in others}
    keys = {name: QueueKeys(name) for name in QUEUES}
    consumers = {name: new_owner() for name in QUEUES}
    for name in QUEUES:  # held by processes that have no connection, each of one queue
        app.queue(name).send("held")
        app.store.call(ops.register(keys[name], consumers[name], 600.0))
        app.store.call(ops.claim(keys[name], consumers[name], 600.0, 1))
    with hanging(nodes, place):
        stores = {number: redis.Redis(port=nodes[number].port) for number in range(3) if number != place}
        until = time.monotonic() + 5
        took: list[float] = []
        eventually(lambda: all(clients[name].llen(keys[name].messages) == 1 for name in others), what="they are back")
        while time.monotonic() < until:
            for name in others:
                stores[node_of(name)].zadd(keys[name].delayed, {NewMessage(str(len(took))).element(1): 1})
            began = time.monotonic()
            eventually(lambda: all(clients[name].zcount(keys[name].delayed, 0, 1) == 0 for name in others))
            took.append(time.monotonic() - began)
        assert sum(one > 2.0 for one in took) <= 1  # once, this machine may have been busy
        away = ("node", f"127.0.0.1:{nodes[place].port}")
        for monitor in monitors:
            eventually(lambda: away in monitor.state().failing)  # noqa: B023
            seen = monitor.state().last_scan_at
            eventually(lambda: monitor.state().last_scan_at > seen)  # noqa: B023
    for name in QUEUES:
        eventually(lambda: app.queue(name).stats().counters.get("reclaimed") == 1, what=name)  # noqa: B023
    eventually(lambda: not any(monitor.state().failing for monitor in monitors), timeout=60)
    eventually(lambda: all_led(monitors))


def test_a_monitor_that_became_a_spare_at_one_node_scans_at_the_others(monitors, nodes, monkeypatch):  # noqa: F811
    eventually(lambda: all_led(monitors))
    monkeypatch.setattr(membership, "MOST_LEADING", 1)
    led_parts = [[part for part in one._nodes.parts if part.place.node] for one in monitors]
    eventually(lambda: sum(part.state().leading for some in led_parts for part in some) == 3)
    monitor, (part, *_) = next(
        (one, its) for one, some in zip(monitors, led_parts, strict=True) if len(its := [*filter(_leads, some)]) > 1
    )
    server = next(one for one in nodes if one.port == part.place.node[1])
    with redis.Redis(port=server.port) as client:  # as after a node that hung: the other monitor came back first
        for key in (monitors_since(part.place.tag), monitors_until(part.place.tag)):
            client.zrem(key, part._membership.id)
    eventually(lambda: not part.state().leading)
    seen = time.time()
    eventually(lambda: monitor.state().last_scan_at > seen)


def test_work_that_belongs_to_no_queue_takes_fewer_beats_and_is_handed_over_later(monitors, nodes):  # noqa: F811
    def lasts(part):
        with redis.Redis(port=nodes[node_of(part.place.tag)].port) as client:
            seconds, micros = client.time()
            until = client.zscore(monitors_until(part.place.tag), part._membership.id) or 0
            return until / 1000 - seconds - micros / 1e6

    eventually(lambda: all_led(monitors))
    for part in monitors[0]._nodes.parts:
        if part.place.has_queues:
            assert lasts(part) <= 1.2
        else:
            eventually(lambda: lasts(part) > 1.5)  # noqa: B023


def _leads(part):
    return part.state().leading


def test_a_slot_that_is_moving_delays_no_other_queue_of_its_node(app, monitors, nodes, monkeypatch):  # noqa: F811
    """Its keys are on the way: what does not exist here is asked for elsewhere, with an answer only there."""
    monkeypatch.setattr(known, "SLOW_LOOK", 1.0)  # nothing changes, so the server tells nothing
    eventually(lambda: all_led(monitors))
    moving, *others = [name for name in QUEUES if node_of(name) == 0]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis(port=server.port)) for server in nodes]
        source, heir = clients[0], clients[1]
        ids = [client.execute_command("CLUSTER", "MYID") for client in clients]
        slot = slot_of(f"{{{moving}}}")
        heir.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        try:
            refused = ("promote", moving), ("scan", moving), ("staged", moving), ("prepared", moving)
            eventually(lambda: any(monitor.state().failing & set(refused) for monitor in monitors))
            for name in others:
                app.queue(name).send("due", delay=0.1)
            eventually(lambda: all(app.queue(name).stats().ready == 1 for name in others))
            assert not any(("node", f"127.0.0.1:{nodes[0].port}") in monitor.state().failing for monitor in monitors)
        finally:
            source.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
            heir.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    eventually(lambda: not any(monitor.state().failing for monitor in monitors), timeout=60)
    app.queue(moving).send("due", delay=0.1)
    eventually(lambda: app.queue(moving).stats().ready == 1)


def test_the_queue_of_a_moved_slot_is_looked_after_at_once(monkeypatch):
    """Also by monitors that did not lead it: no call of theirs is told that the slot has moved."""
    monkeypatch.setattr(known, "SLOW_LOOK", 1000.0)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(replicas=False))
        for _ in range(3):
            stack.enter_context(running(cluster.url))
        queue = stack.enter_context(reliq.Reliq(cluster.url)).queue("orders")
        for _ in range(3):
            cluster.move_slot("orders")
            queue.send("x", delay=0.1)
            eventually(lambda: queue.stats().delayed == 0)
