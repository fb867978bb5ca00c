"""kombu's transport while processes fork and are killed, and Redis closes connections."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest

import reliq
import reliq.contrib.kombu  # registers the transport
from reliq.contrib import guard
from reliq.contrib.kombu.broker import Broker
from reliq.contrib.kombu.consuming import Settler
from reliq.embedded import EmbeddedRedis
from tests.integration.celery.kombu_support import Received, publish
from tests.support.workers import ROOT, eventually

pytestmark = pytest.mark.celery


def test_a_consumer_outlives_an_outage_of_redis(broker: str, connection: kombu.Connection) -> None:
    import redis

    received = Received(connection, "orders", ack=False, prefetch_count=4)
    with received.consumer:
        publish(connection, "orders", "before")
        received.drain_open(1)
        with redis.from_url(broker.removeprefix("reliq+")) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        publish(connection, "orders", "after")
        received.drain_open(2)
        for message in received.messages:
            message.ack()
    assert received == ["before", "after"]


def test_a_queue_that_is_away_does_not_hold_up_the_acks_of_others(app: reliq.Reliq) -> None:
    settled: list[str] = []

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        @contextlib.contextmanager
        def watched(self) -> Iterator[bool]:
            yield True

        def relieve(self, _: object) -> None:
            settled.append(self.name)
            if self.name == "away":
                raise reliq.RedisUnavailable("its node is away")

    settler = Settler(app.store, lambda: [Fake("away"), Fake("here")])  # type: ignore[list-item]
    assert isinstance(settler._settle(), reliq.RedisUnavailable)
    assert settled == ["away", "here"]


def test_an_outage_does_not_hold_up_the_end_of_many_consumers() -> None:
    with EmbeddedRedis() as server:
        connection = kombu.Connection(f"reliq+{server.url}")
        consumer = kombu.Consumer(connection, [kombu.Queue(f"queue-{number}") for number in range(6)])
        consumer.consume()
    begun = time.monotonic()
    consumer.cancel()
    connection.close()
    assert time.monotonic() - begun < 20  # a send waits for Redis for ten seconds, and there are six queues


def test_a_passing_note_does_not_wait_for_redis() -> None:
    with EmbeddedRedis() as server:
        connection = kombu.Connection(f"reliq+{server.url}")
        notes = kombu.Exchange("notes", type="topic", delivery_mode="transient")
        producer = kombu.Producer(connection, exchange=notes)
        producer.publish("note", routing_key="worker.heartbeat", retry=True)
    with pytest.raises(kombu.exceptions.OperationalError, match="cannot be reached"):
        producer.publish("note", routing_key="worker.heartbeat", retry=True)
    connection.close()


def test_a_transient_task_is_repeated_while_redis_is_away(
    connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, waits = Broker.publish, []

    def away_at_first(self: Broker, key: str, message: reliq.NewMessage, timeout: float | None = None) -> None:
        waits.append(timeout)
        if len(waits) == 1:
            raise reliq.errors.RedisUnavailable("Redis restarts")
        publish(self, key, message, timeout)

    monkeypatch.setattr(Broker, "publish", away_at_first)
    exchange = kombu.Exchange("tasks", type="topic", delivery_mode="transient")
    kombu.Queue("orders", exchange, "shop.#")(connection.default_channel).declare()
    task = {"task": "shop.ship", "id": "1"}
    kombu.Producer(connection, exchange).publish("ship", routing_key="shop.eu", headers=task, retry=True)
    assert waits == [None, None]
    assert Received(connection, "orders").drain(1) == ["ship"]


def test_a_forked_child_closes_nothing_of_its_parent(app: reliq.Reliq, connection: kombu.Connection) -> None:
    received = Received(connection, "orders", ack=False, prefetch_count=1)
    with received.consumer:
        publish(connection, "orders", "held")
        received.drain_open(1)
        if (pid := os.fork()) == 0:
            received.consumer.channel.close()
            connection.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert app.queue("orders").stats().processing == 1
        received.messages[0].ack()
        eventually(lambda: app.queue("orders").stats().counters.get("acked") == 1)


HOLDER = """
import json, os, sys, time, kombu, reliq.contrib.kombu
connection = kombu.Connection(sys.argv[1], transport_options=json.loads(sys.argv[3]))
def hold(body, message):
    if sys.argv[2] == "fork" and os.fork() == 0:
        print("held", os.getpid(), flush=True)
        time.sleep(60)
        os._exit(0)
    if sys.argv[2] != "fork":
        print("held", flush=True)
with kombu.Consumer(connection, [kombu.Queue("orders")], callbacks=[hold], prefetch_count=1):
    while True:
        connection.drain_events()
"""


@pytest.mark.parametrize("children", ["none", "fork"])
def test_a_killed_process_loses_its_message_to_another_long_before_its_lease_ends(broker: str, children: str) -> None:
    """Also where a child of it lives on, which inherited its sockets."""
    soon = {"reconnect_grace": 0.5}
    with (
        kombu.Connection(broker, transport_options=soon) as connection,
        kombu.Consumer(connection, [kombu.Queue("runs the monitor")]),
    ):
        publish(connection, "orders", "work")
        child = subprocess.Popen(
            [sys.executable, "-c", HOLDER, broker, children, '{"lease": 60}'],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert child.stdout is not None
        orphan = child.stdout.readline().split()[1:]
        try:
            child.kill()
            begun = time.monotonic()
            received = Received(connection, "orders")
            with received.consumer:
                received.drain_open(1, timeout=30)
            assert time.monotonic() - begun < 30
            assert received.messages[0].delivery_info["redelivered"] is True
        finally:
            child.wait()
            child.stdout.close()
            for pid in orphan:
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("children", ["none", "fork"])
def test_a_guard_returns_what_a_killed_process_held(app: reliq.Reliq, broker: str, children: str) -> None:
    """Without any monitor, and beside a child that inherited the guard's pipe."""
    with kombu.Connection(broker) as connection:
        publish(connection, "orders", "work")
    command = [sys.executable, "-c", HOLDER, broker, children, '{"lease": 60, "guard": true, "monitor": false}']
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert holder.stdout is not None
    orphan = holder.stdout.readline().split()[1:]
    try:
        assert app.queue("orders").stats().processing == 1
        holder.kill()
        eventually(lambda: app.queue("orders").stats().ready == 1, timeout=30)
    finally:
        holder.wait()
        holder.stdout.close()
        for pid in orphan:
            os.kill(int(pid), signal.SIGKILL)


def test_a_guard_ends_with_the_last_consumer_and_not_before(broker: str) -> None:
    import psutil

    def guards() -> list[psutil.Process]:
        found = []
        for one in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                found += [one] if "reliq.contrib.guard" in one.cmdline() else []
        return found

    with kombu.Connection(broker, transport_options={"guard": True}) as connection:
        with kombu.Consumer(connection, [kombu.Queue("one"), kombu.Queue("two")]):
            (child,) = eventually(guards)
            eventually(lambda: _ignores(child.pid, signal.SIGTERM))  # as it is sent to all processes of a service
        eventually(lambda: guards() == [])  # one that is told to end while it still starts does so first
        with kombu.Consumer(connection, [kombu.Queue("one")]):
            (child,) = eventually(guards)
            child.kill()
            child.wait()
        with kombu.Consumer(connection, [kombu.Queue("one")]):
            assert child not in guards()
            assert len(guards()) == 1


def test_a_guard_that_ends_late_leaves_no_zombie(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_END", 0.0)
    ending = guard.Guard(broker.removeprefix("reliq+"), allow_eviction=False)
    ending.end()
    eventually(lambda: not Path(f"/proc/{ending._process.pid}").exists())


def _ignores(pid: int, number: signal.Signals) -> bool:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("SigIgn")]
    return bool(int(line.split()[1], 16) & (1 << (number - 1)))
