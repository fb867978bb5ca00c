"""kombu's transport on a real Redis: what a program with kombu sees, and what reliq's own commands see of it."""

import select
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
from kombu.asynchronous.hub import Hub

import reliq
import reliq.contrib.kombu
from reliq.contract import values
from reliq.contrib.kombu.consuming import Inbox
from reliq.transport.store import Store
from tests.integration.celery.kombu_support import Received, publish
from tests.support.workers import eventually


def test_messages_come_in_order_and_are_gone_once_acked(app: reliq.Reliq, connection: kombu.Connection) -> None:
    publish(connection, "orders", *range(300))
    assert app.queue("orders").stats().ready == 300
    assert Received(connection, "orders", prefetch_count=8).drain(300) == list(range(300))
    stats = eventually(lambda: (now := app.queue("orders").stats()).counters.get("acked") == 300 and now)
    assert (stats.ready, stats.processing) == (0, 0)


def test_a_consumer_that_ends_while_its_acks_are_sent_gives_nothing_back(
    app: reliq.Reliq, connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    import redis

    sending, go, call = threading.Event(), threading.Event(), Store.call

    def late(self: Store, *args: Any, **options: Any) -> Any:
        if threading.current_thread().name == "reliq-settler":
            sending.set()
            go.wait(30)
        return call(self, *args, **options)

    publish(connection, "orders", "x")
    received = Received(connection, "orders", ack=False)
    received.consumer.consume()
    received.drain_open(1)
    monkeypatch.setattr(Store, "call", late)
    with redis.from_url(app.url) as client:  # the reader waits for messages, and takes no acks along
        eventually(lambda: client.info("clients")["blocked_clients"])
    received.messages[0].ack()
    assert sending.wait(30)
    ending = threading.Thread(target=received.consumer.cancel)
    ending.start()
    ending.join(0.5)  # it has to wait for the acks
    go.set()
    ending.join(30)
    eventually(lambda: app.queue("orders").stats().counters.get("acked") == 1)
    assert app.queue("orders").stats().ready == 0


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


def test_two_consumers_of_one_queue_on_a_channel_take_turns_and_end_alone(
    app: reliq.Reliq, connection: kombu.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Received(connection, "q"), Received(connection, "q")
    assert first.consumer.channel is second.consumer.channel
    with second.consumer:
        with first.consumer:
            publish(connection, "q", *range(100))
            while len(first) + len(second) < 100:
                connection.drain_events(timeout=10)
        publish(connection, "q", "later")
        while "later" not in second:
            connection.drain_events(timeout=10)
    eventually(lambda: app.queue("q").stats().counters["acked"] == 101)
    assert {*first, *second} == {*range(100), "later"}
    assert caplog.messages == []


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


def test_a_poll_finds_a_message_that_comes_after_a_quiet_while(
    connection: kombu.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "EMPTY_FOR", 0.0)
    queue = kombu.Queue("orders")(connection.default_channel)
    assert [queue.get() for _ in range(3)] == [None, None, None]
    publish(connection, "orders", "late")
    message = queue.get()
    assert message is not None
    assert message.payload == "late"


def test_a_poll_passes_over_expired_messages(connection: kombu.Connection) -> None:
    for body in ("old", "older"):
        publish(connection, "orders", body, expiration=0.05)
    publish(connection, "orders", "new")
    time.sleep(0.1)  # the server's clock decides, and nothing else happens meanwhile
    message = kombu.Queue("orders")(connection.default_channel).get()
    assert message is not None
    assert message.payload == "new"


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
