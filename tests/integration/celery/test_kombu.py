"""kombu's transport on a real Redis: what a program with kombu sees, and what reliq's own commands see of it."""

import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub

import reliq
import reliq.contrib.kombu
from reliq.contrib.kombu.consuming import Inbox
from reliq.contrib.kombu.names import lasting_queue, passing_queue, pattern, routing_key
from reliq.contrib.kombu.options import broker_url
from reliq.model.routing import Routes
from tests.support.workers import ROOT, eventually


@pytest.fixture
def broker(url: str) -> str:
    return f"reliq+{url}"


@pytest.fixture
def connection(broker: str) -> Iterator[kombu.Connection]:
    with kombu.Connection(broker) as connection:
        yield connection


class Received(list[Any]):
    """A consumer that keeps what it receives and acks it, unless told not to."""

    def __init__(self, connection: kombu.Connection, *queues: str, ack: bool = True, **options: Any) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self._ack = ack
        self._connection = connection
        self.consumer = kombu.Consumer(
            connection, [kombu.Queue(name) for name in queues], callbacks=[self._take], **options
        )

    def _take(self, body: Any, message: Any) -> None:
        self.append(body)
        self.messages.append(message)
        if self._ack:
            message.ack()

    def drain(self, count: int, timeout: float = 10) -> "Received":
        with self.consumer:
            self.drain_open(count, timeout)
        return self

    def drain_open(self, count: int, timeout: float = 10) -> None:
        while len(self) < count:
            self._connection.drain_events(timeout=timeout)


def publish(connection: kombu.Connection, queue: str, *bodies: Any, **options: Any) -> None:
    producer = kombu.Producer(connection)
    for body in bodies:
        producer.publish(body, routing_key=queue, declare=[kombu.Queue(queue)], **options)


def test_messages_come_in_order_and_are_gone_once_acked(app: reliq.Reliq, connection: kombu.Connection) -> None:
    publish(connection, "orders", *range(300))
    assert app.queue("orders").stats().ready == 300
    assert Received(connection, "orders", prefetch_count=8).drain(300) == list(range(300))
    stats = eventually(lambda: (now := app.queue("orders").stats()).counters.get("acked") == 300 and now)
    assert (stats.ready, stats.processing) == (0, 0)


def test_acks_and_claims_share_calls(app: reliq.Reliq, connection: kombu.Connection) -> None:
    import redis

    publish(connection, "orders", *range(400))
    with redis.from_url(app.url) as client:
        client.config_resetstat()
        Received(connection, "orders", prefetch_count=16).drain(400)
        eventually(lambda: app.queue("orders").stats().counters.get("acked") == 400)
        calls = client.info("commandstats")
    assert calls["cmdstat_evalsha"]["calls"] < 150  # of claims, acks, heartbeats and the looks of this test


def test_the_prefetch_count_holds_for_all_queues_of_a_channel(app: reliq.Reliq, connection: kombu.Connection) -> None:
    for queue in ("one", "two", "three"):
        publish(connection, queue, *range(20))
    received = Received(connection, "one", "two", "three", ack=False, prefetch_count=4)
    with received.consumer:
        received.drain_open(4)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.2)

        def held() -> int:
            return sum(app.queue(name).stats().processing for name in ("one", "two", "three"))

        eventually(lambda: held() == 4)
        for message in list(received.messages):
            message.ack()
        received.drain_open(8)


def test_celery_may_decide_message_by_message(app: reliq.Reliq, connection: kombu.Connection) -> None:
    """As worker_disable_prefetch does, which replaces a method of the channel's QoS."""
    publish(connection, "orders", *range(5))
    received, limit = Received(connection, "orders", prefetch_count=8), 2
    received.consumer.channel.qos.can_consume = lambda: len(received) < limit
    with received.consumer:
        received.drain_open(2)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        assert app.queue("orders").stats().ready == 3
        limit = 5  # nobody is told
        received.drain_open(5)


def test_a_busy_queue_does_not_starve_another(connection: kombu.Connection) -> None:
    publish(connection, "busy", *["busy"] * 500)
    publish(connection, "calm", *["calm"] * 5)
    received = Received(connection, "busy", "calm", prefetch_count=1)
    with received.consumer:
        while received.count("calm") < 5:
            connection.drain_events(timeout=10)
    assert received.count("busy") < 300


def test_an_idle_consumer_gets_a_message_at_once(broker: str, connection: kombu.Connection) -> None:
    received = Received(connection, "orders")
    with received.consumer, kombu.Connection(broker) as other:
        publish(other, "orders", "warm")
        received.drain_open(1)
        times = []
        for number in range(5):
            begun = time.perf_counter()
            publish(other, "orders", number)
            received.drain_open(number + 2)
            times.append(time.perf_counter() - begun)
    assert min(times) < 0.05


def test_the_event_loop_sleeps_until_there_is_a_message(broker: str, connection: kombu.Connection) -> None:
    hub, received, ticks = Hub(), Received(connection, "orders"), []
    with received.consumer:
        connection.register_with_event_loop(hub)
        hub.on_tick.add(lambda: ticks.append(1))
        until = time.monotonic() + 0.5
        timer = threading.Timer(0.5, lambda: publish(kombu.Connection(broker), "orders", "late"))
        timer.start()
        while not received:
            hub.run_once()
        assert time.monotonic() > until - 0.05
        assert received == ["late"]
        assert len(ticks) < 10
        timer.join()
    hub.close()


def test_a_message_that_comes_while_the_event_loop_wakes_up_does_not_silence_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox = Inbox()

    class Socket:
        """The inbox's end, at which a reader puts a message in the moment in which the event loop reads."""

        def recv(self, size: int) -> bytes:
            inbox.poke()
            return woken.recv(size)

    woken = inbox._woken
    inbox.poke()
    monkeypatch.setattr(inbox, "_woken", Socket())
    inbox.calm()
    monkeypatch.undo()
    inbox.poke()
    assert select.select([inbox.fileno()], [], [], 0)[0]
    inbox.close()


def test_messages_stay_to_be_delivered_when_one_of_them_fails_in_the_event_loop(connection: kombu.Connection) -> None:
    publish(connection, "orders", *range(4))
    received: list[int] = []

    def take(body: int, message: kombu.Message) -> None:
        received.append(body)
        message.ack()
        if body == 0:
            raise KeyError(body)

    def turn_until(count: int, hub: Hub) -> None:
        connection.register_with_event_loop(hub)
        while len(received) < count:
            hub.run_once()
        hub.close()

    with kombu.Consumer(connection, [kombu.Queue("orders")], callbacks=[take]):
        with pytest.raises(KeyError):
            turn_until(4, hub := Hub())
        hub.close()
        turn_until(4, Hub())
    assert received == [0, 1, 2, 3]


def test_what_is_rejected_is_a_dead_letter_and_can_be_redriven(app: reliq.Reliq, connection: kombu.Connection) -> None:
    publish(connection, "orders", {"order": 1}, headers={"task": "shop.ship", "id": "t1"})
    received = Received(connection, "orders", ack=False).drain(1)
    received.messages[0].reject()
    (letter,) = eventually(lambda: list(app.queue("orders").dead.list()))
    assert (letter.reason, letter.json(), letter.headers["task"]) == ("rejected", {"order": 1}, "shop.ship")
    app.queue("orders").dead.redrive(headers={"task_id": "t1"})
    again = Received(connection, "orders").drain(1)
    assert again == [{"order": 1}]
    assert again.messages[0].headers == {"task": "shop.ship", "id": "t1"}


def test_a_message_put_back_says_so_and_waits_behind_the_others(connection: kombu.Connection) -> None:
    publish(connection, "orders", "first", "second")
    queue = kombu.Queue("orders")(connection.default_channel)
    first = queue.get()
    assert first is not None
    assert first.delivery_info["redelivered"] is False
    first.requeue()
    received = Received(connection, "orders").drain(2)
    assert received == ["second", "first"]
    assert [one.delivery_info["redelivered"] for one in received.messages] == [False, True]


def test_closing_a_channel_puts_unacked_messages_back_in_order(app: reliq.Reliq, broker: str) -> None:
    with kombu.Connection(broker) as connection:
        publish(connection, "orders", *range(10))
        Received(connection, "orders", ack=False, prefetch_count=5).drain(5)
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.processing, stats.consumers) == (10, 0, 0)
    with kombu.Connection(broker) as connection:
        assert Received(connection, "orders").drain(10) == list(range(10))


def test_a_noted_failure_counts_until_the_message_is_a_dead_letter(
    app: reliq.Reliq, connection: kombu.Connection
) -> None:
    app.queue("orders").configure(max_deliveries=3)
    publish(connection, "orders", "poison")
    received = Received(connection, "orders", ack=False)
    with received.consumer:
        for number in range(3):
            received.drain_open(number + 1)
            received.messages[-1].failure = "WorkerLostError", f"signal 9, {number}"
            received.messages[-1].reject(requeue=True)
    (letter,) = eventually(lambda: list(app.queue("orders").dead.list()))
    assert letter.reason == "max_deliveries"
    assert [(one.error_class, one.text) for one in letter.errors][-1] == ("WorkerLostError", "signal 9, 2")


def test_an_eta_waits_in_redis_and_not_in_the_worker(app: reliq.Reliq, connection: kombu.Connection) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.6)
    publish(connection, "orders", "later", headers={"eta": due.isoformat()})
    assert app.queue("orders").stats().delayed == 1
    received = Received(connection, "orders").drain(1)
    assert received == ["later"]
    assert datetime.now(UTC) >= due - timedelta(milliseconds=5)


def test_an_expired_message_is_a_dead_letter(app: reliq.Reliq, connection: kombu.Connection) -> None:
    publish(connection, "orders", "old", expiration=0.05)
    publish(connection, "orders", "new")
    time.sleep(0.1)  # the server's clock decides, and nothing else happens meanwhile
    assert Received(connection, "orders").drain(1) == ["new"]
    (letter,) = eventually(lambda: list(app.queue("orders").dead.list()))
    assert (letter.reason, letter.body) == ("expired", b"old")


def test_large_headers_and_large_bodies_arrive(connection: kombu.Connection) -> None:
    headers = {"stamps": "s" * 30_000, "depth": {"n": [1, 2, None]}}
    publish(connection, "orders", "b" * 3_000_000, headers=headers)
    received = Received(connection, "orders").drain(1)
    assert received[0] == "b" * 3_000_000
    assert received.messages[0].headers == headers


def test_a_message_of_another_program_has_its_headers_and_its_bytes(
    app: reliq.Reliq, connection: kombu.Connection
) -> None:
    app.queue("orders").send(b"\x00raw", headers={"from": "curl"})
    message = kombu.Queue("orders")(connection.default_channel).get(accept=["application/octet-stream"])
    assert message is not None
    assert (message.body, message.headers) == (b"\x00raw", {"from": "curl"})
    message.ack()


@pytest.mark.parametrize(
    ("kind", "bound", "sent", "reached"),
    [
        ("direct", "eu.orders", "eu.orders", True),
        ("direct", "eu.*", "eu.orders", False),
        ("direct", "eu.*", "eu.*", True),
        ("topic", "eu.*", "eu.orders", True),
        ("topic", "eu.*", "eu.orders.new", False),
        ("topic", "eu.#", "eu", True),
        ("topic", "a b.#", "a b.c%d", True),
        ("fanout", "", "anything.at all", True),
        ("fanout", "x", "", True),
        ("direct", "", "", True),
        ("direct", "", "x", False),
    ],
)
def test_exchanges_route_as_in_amqp(kind: str, bound: str, sent: str, reached: bool) -> None:
    routes = Routes([("queue", pattern("my.exchange", kind, bound)), ("other", pattern("my", kind, bound))])
    assert routes.match(routing_key("my.exchange", sent)) == (("queue",) if reached else ())


def test_names_that_reliq_does_not_allow_get_a_legible_one() -> None:
    assert lasting_queue("celery@host.celery.pidbox") == "celery@host.celery.pidbox"
    assert lasting_queue("my:queue") != lasting_queue("my queue")
    for name in ("my:queue", "-x", "ü" * 300, "a@broadcast.c01234567890123456789", ""):
        assert reliq.model.keys.check_name(lasting_queue(name))
        assert reliq.model.keys.instance_of(passing_queue(name))


def test_fanout_reaches_every_queue_also_one_without_a_consumer(
    app: reliq.Reliq, broker: str, connection: kombu.Connection
) -> None:
    news = kombu.Exchange("news", type="fanout")
    for name in ("mail", "sms"):
        kombu.Queue(name, exchange=news)(connection.default_channel).declare()
    with kombu.Connection(broker) as other:  # its process knows nothing of the queues
        kombu.Producer(other, exchange=news).publish("hello")
    assert {app.queue(name).stats().ready for name in ("mail", "sms")} == {1}
    kombu.Queue("sms", exchange=news)(connection.default_channel).delete()
    kombu.Producer(connection, exchange=news).publish("again")
    assert (app.queue("mail").stats().ready, "sms" in app.queues()) == (2, False)


def test_a_queue_to_be_deleted_goes_with_its_consumer(app: reliq.Reliq, broker: str) -> None:
    reply = kombu.Queue("reply", auto_delete=True)
    name = passing_queue("reply")
    with kombu.Connection(broker) as connection, kombu.Connection(broker) as watching:
        consumer = kombu.Consumer(connection, [reply], callbacks=[lambda body, message: message.ack()])
        with consumer, kombu.Consumer(watching, [kombu.Queue("lasting")]):
            kombu.Producer(watching).publish("to its name", routing_key="reply")
            connection.drain_events(timeout=5)
            consumer.close()
            connection.close()
            eventually(lambda: name not in app.queues(of_broadcasts=True), what="the queue is dropped")


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
        return [one for one in psutil.Process().children() if "reliq.contrib.guard" in one.cmdline()]

    with kombu.Connection(broker, transport_options={"guard": True}) as connection:
        with kombu.Consumer(connection, [kombu.Queue("one"), kombu.Queue("two")]):
            (guard,) = guards()
            eventually(lambda: _ignores(guard.pid, signal.SIGTERM))  # as it is sent to all processes of a service
        assert guards() == []
        with kombu.Consumer(connection, [kombu.Queue("one")]):
            (guard,) = guards()
            guard.kill()
            guard.wait()
        with kombu.Consumer(connection, [kombu.Queue("one")]):
            assert guard not in guards()
            assert len(guards()) == 1


def _ignores(pid: int, number: signal.Signals) -> bool:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("SigIgn")]
    return bool(int(line.split()[1], 16) & (1 << (number - 1)))


def test_one_url_one_broker_and_no_password_is_shown(broker: str) -> None:
    with_login = broker.replace("redis://", "redis://user:se%2Fcret@")
    connection = kombu.Connection(with_login)
    assert "cret" not in connection.as_uri()
    assert connection.as_uri(include_password=True) == with_login
    one, two = kombu.Connection(broker), kombu.Connection(broker)
    assert one.transport.broker is two.transport.broker


def test_options_that_make_no_sense_are_refused(broker: str) -> None:
    with pytest.raises(reliq.errors.InvalidSetting, match="priority_order is 'up'"):
        kombu.Connection(broker, transport_options={"priority_order": "up"}).connect()
    with pytest.raises(reliq.errors.InvalidSetting, match=r"lease is 0\.1"):
        kombu.Connection(broker, transport_options={"lease": 0.1}).connect()


def test_the_second_url_is_used_where_the_first_is_dead(app: reliq.Reliq, broker: str) -> None:
    dead = "reliq+redis://127.0.0.1:1/0"
    with kombu.Connection(f"{dead};{broker}") as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, interval_step=0)
        publish(connection, "orders", 1)
    assert app.queue("orders").stats().ready == 1


def test_tls_options_of_celery_become_those_of_the_url() -> None:
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}
    secured = kombu.Connection("reliq+redis://:pw@host/3", ssl=options)
    url = "rediss://:pw@host/3?ssl_cert_reqs=required&ssl_ca_certs=%2Fetc%2Fca.pem&ssl_check_hostname=False"
    assert broker_url(secured) == url
    assert broker_url(kombu.Connection("reliq+redis+sentinel://a:1,b:2/main/0", ssl=True)).startswith("rediss+sentinel")
    assert broker_url(kombu.Connection("redis://host/1", transport="reliq.contrib.kombu:Transport")) == "redis://host/1"
