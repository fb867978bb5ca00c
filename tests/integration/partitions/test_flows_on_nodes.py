"""Flows on a cluster: messages in queues on several nodes, and their record on one of these."""

import contextlib
import os
import signal
import threading

import pytest
import redis

import reliq
from reliq.model.keys import FLOWS, QUEUES, QueueKeys
from reliq.ops.topology import slot_of
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from tests.support.turns import Monitor
from tests.support.workers import eventually, working


@pytest.fixture
def app(emptied):
    with reliq.Reliq(emptied.url, send_timeout=0.2) as app:
        yield app


@pytest.fixture
def names(cluster):
    """A queue on each node: on that of the records of flows, and on the two others."""
    first = cluster.master_of(FLOWS)
    found = {first: "", **dict.fromkeys(cluster.masters(), "")}
    number = 0
    while not all(found.values()):
        name = f"orders{number}"
        node = cluster.master_of(QueueKeys(name).messages)
        found[node] = found[node] or name
        number += 1
    return [*found.values()]


@pytest.fixture
def ran(app, names):
    done: list[str] = []
    lock = threading.Lock()

    def handle(message):
        with lock:
            done.append(message.body.decode())
        if message.body == b"opens":
            with app.flow(parent=message) as flow:
                parts = [flow.send(name, f"within {name}") for name in names]
                flow.send(names[1], "joined", after=parts)

    for name in names:
        app.handler(name)(handle)
    return done


def nothing_is_left(app, cluster, names):
    Monitor(app.store).tell_flows()
    assert app.flows() == []
    for name in names:
        keys = QueueKeys(name)
        with redis.Redis(port=cluster.master_of(keys.messages).port) as client:
            assert not client.exists(keys.followed)
            assert not client.exists(keys.waiting)
            assert client.hget(keys.config, "flowing") is None


def test_a_fan_in_over_all_nodes(app, cluster, names, ran):
    assert len({slot_of(QueueKeys(name).messages) for name in names}) == 3
    with app.flow() as flow:
        parts = [flow.send(name, f"{name} {number}") for number in range(10) for name in names]
        ends = [flow.send(name, f"end {name}", after=parts) for name in names]
        flow.send(names[0], "last", after=ends)
    with working(app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
    assert len(ran) == len({*ran}) == 34
    assert {*ran[30:33]} == {f"end {name}" for name in names}
    nothing_is_left(app, cluster, names)
    assert app.flow_progress(flow.id).state == "ended"


def test_a_flow_within_a_flow_over_all_nodes(app, cluster, names, ran):
    with app.flow() as flow:
        flow.send(names[2], "last", after=flow.send(names[1], "opens"))
    with working(app, monitor=True):
        eventually(lambda: ran[-1:] == ["last"])
    assert (ran[0], {*ran[1:4]}, ran[4:]) == ("opens", {f"within {name}" for name in names}, ["joined", "last"])
    nothing_is_left(app, cluster, names)
    assert [one.state for one in app.flow_progress(flow.id).members] == ["handled", "handled"]


@contextlib.contextmanager
def away(cluster, node):
    os.kill(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)
        eventually(cluster.whole, timeout=60)


def test_a_node_that_is_away_for_a_while_delays_those_behind_its_messages(app, cluster, names, ran):
    """Whether it has the ones before, or those behind."""
    victim = next(one for one in names[1:] if cluster.master_of(QueueKeys(one).messages) != cluster.master_of(QUEUES))
    other = next(one for one in names[1:] if one != victim)
    with app.flow() as flow:
        there = [flow.send(victim, f"there {number}") for number in range(5)]
        here = [flow.send(other, f"here {number}") for number in range(5)]
        behind = flow.send(victim, "behind", after=here)
        flow.send(other, "last", after=[*there, behind])
    monitor = MonitorThread(Store(app.url), reconnect_grace=0)
    monitor.start()
    try:
        with away(cluster, cluster.master_of(QueueKeys(victim).messages)), app.queue(other).consumer() as consumer:
            consumer.ack(*consumer.claim(10))
            eventually(lambda: [one.state for one in app.flow_progress(flow.id).members].count("handled") == 5)
        with working(app):
            eventually(lambda: ran[-1:] == ["last"], timeout=60)
    finally:
        monitor.stop()
    assert len(ran) == len({*ran}) == 7
    nothing_is_left(app, cluster, names)
    assert app.flow_progress(flow.id).state == "ended"
