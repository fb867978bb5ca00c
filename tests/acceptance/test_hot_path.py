"""What the hot path asks of Redis, counted by Redis itself: a regression shows here before it shows in seconds."""

from typing import Any

import pytest
import redis

from reliq import ops
from reliq.client.heartbeat import Heartbeat
from reliq.model.keys import QueueKeys, new_owner
from reliq.model.outgoing import NewMessage
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.lease import Lease
from reliq.transport.store import Store
from tests.support.workers import eventually, working

MESSAGES, BATCH = 10_000, 100
ROUND_TRIPS = 0.05  #: a message
#: Every command a message, those inside of scripts too: one RPOPLPUSH, and a share of what a batch takes.
COMMANDS = 1.2
SIZES = pytest.mark.parametrize("size", [200, 64 * 1024])  #: of a body
TAKEN_IN, TAKEN_APPENDED = 40, 130  #: bytes a message for claim and ack, to Redis and to its append-only file
#: Bytes a message beyond its body, by messages a call: LPUSH has 110, the rest are MULTI, EXEC, sequence and counter.
SENT_APPENDED = {1: 400, 50: 130}


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture
def growing(server):
    """The server; its append-only file is not rewritten meanwhile."""
    before = server.config_get("auto-aof-rewrite-percentage")
    server.config_set("auto-aof-rewrite-percentage", 0)
    yield server
    for name, value in before.items():
        server.config_set(name, value)


def received(server):
    return server.info("stats")["total_net_input_bytes"]


def appended(server):
    persistence = server.info("persistence")
    return persistence["aof_current_size"] + persistence["aof_buffer_length"]


def counted(server):
    """Calls by command; Redis counts those inside of scripts too."""
    return {name.removeprefix("cmdstat_"): one["calls"] for name, one in server.info("commandstats").items()}


def round_trips(calls):
    """What a client asked for; reliq's scripts call none of these."""
    return sum(calls.get(name, 0) for name in ("evalsha", "eval", "blmove", "exec"))


def commands(calls):
    return sum(calls.values()) - round_trips(calls)


def test_settling_a_batch_and_claiming_the_next_is_one_round_trip(app, url, server):
    app.queue("orders").send_many(["x"] * MESSAGES)
    store, connection = Store(url), Store(url).connection()
    consumer = ConsumerSteps(QueueKeys("orders"), new_owner(), 15.0)
    server.config_resetstat()
    done = 0
    elements: list[bytes] = []
    while messages := store.run(consumer.settle(elements, (), BATCH), connection)[1]:
        elements = [message.element for message in messages]
        done += len(messages)
    calls = counted(server)
    connection.close()
    assert done == MESSAGES
    assert "lrem" not in calls  # the oldest messages are cut off together
    assert calls["ltrim"] == MESSAGES / BATCH
    assert round_trips(calls) / MESSAGES <= ROUND_TRIPS
    assert commands(calls) / MESSAGES <= COMMANDS


def test_a_worker_takes_a_twentieth_of_a_round_trip_a_message(app, server):
    queue, runs = app.queue("orders"), []

    @app.handler("orders")
    def handle(message):
        runs.append(message.id)

    sent = queue.send_many(["x"] * MESSAGES)
    server.config_resetstat()
    with working(app):
        eventually(lambda: len(runs) == MESSAGES, timeout=60)
        calls = counted(server)
    assert sorted(runs) == sorted(sent)
    assert round_trips(calls) / MESSAGES <= ROUND_TRIPS


def test_send_many_is_one_round_trip_a_thousand(app, server):
    queue = app.queue("orders")
    queue.send("the queue is announced")
    queue.send("the script is loaded")
    server.config_resetstat()
    queue.send_many(["x"] * MESSAGES)
    assert round_trips(counted(server)) == MESSAGES / 1000


def test_send_is_one_round_trip(app, server):
    queue = app.queue("orders")
    queue.send("the queue is announced")
    queue.send("the script is loaded")
    server.config_resetstat()
    for _ in range(50):
        queue.send("x")
    assert round_trips(counted(server)) == 50


def keyed(keys, value, size):
    options: dict[str, Any] = dict.fromkeys(keys.split(), value)
    return NewMessage(b"x" * size, **options)


@pytest.mark.parametrize(("keys", "most"), [("key", 0.02), ("dedup_key", 2.02), ("key dedup_key", 2.02)])
@pytest.mark.parametrize("size", [200, 4096])
def test_keys_take_no_command_but_those_for_deduplication_keys(app, server, keys, most, size):
    queue = app.queue("orders")
    for _ in range(2):  # the queue is announced, and the scripts are loaded
        queue.send_many([keyed(keys, "first", size)])
    server.config_resetstat()
    queue.send_many([keyed(keys, str(at), size) for at in range(1000)])
    assert commands(counted(server)) / 1000 <= most


def test_calls_for_the_members_of_a_cycle_are_short(app, server):
    cycle, members = app.queue("accounts").cycle, [str(number) for number in range(1000)]
    for _ in range(2):
        cycle.add("the scripts are loaded")
        cycle.remove("the scripts are loaded")
    server.config_resetstat()
    assert cycle.add(*members) == 1000
    assert round_trips(counted(server)) == 1 + 25  # the queue is announced; 40 members take Redis two milliseconds
    server.config_resetstat()
    assert cycle.remove(*members) == 1000
    assert round_trips(counted(server)) == 4


def test_a_heartbeat_asks_as_much_as_before_workers_could_be_paused(app, server):
    """One script and one read a beat: instructions are in what it has read anyway."""
    keys, owner, told = QueueKeys("orders"), new_owner(), list[object]()
    app.store.call(ops.register(keys, owner, 15.0))
    heartbeat = Heartbeat(app.store, owner, 15.0, lambda: [Lease(keys, owner, 15.0, told=told.append)], told.append)
    heartbeat.beat()
    server.config_resetstat()
    for _ in range(10):
        heartbeat.beat()
    calls = {name: count for name, count in counted(server).items() if name in ("evalsha", "hgetall", "hset", "hmget")}
    assert calls == {"evalsha": 10, "hgetall": 10}
    assert told == []


@SIZES
def test_claim_and_ack_neither_receive_nor_append_a_body(app, url, growing, size):
    """With calls as large as they may be: a worker's are, where its handler is quick."""
    messages, got = max(500, 50_000_000 // size), 0
    app.queue("orders").send_many([b"x" * size] * messages)
    store, connection = Store(url), Store(url).connection()
    consumer = ConsumerSteps(QueueKeys("orders"), new_owner(), 15.0)
    elements: list[bytes] = []
    for _ in range(2):  # the script for acks is loaded by the second
        got += len(elements)
        elements = [message.element for message in store.run(consumer.settle(elements, (), 1), connection)[1]]
    before_in, before_appended = received(growing), appended(growing)
    while elements:
        got += len(elements)
        claimed = store.run(consumer.settle(elements, (), 256), connection)[1]
        assert {len(message.body) for message in claimed} <= {size}
        elements = [message.element for message in claimed]
    taken_in, taken_appended = received(growing) - before_in, appended(growing) - before_appended
    connection.close()
    store.close()
    assert got == messages
    assert taken_in / messages <= TAKEN_IN
    assert taken_appended / messages <= TAKEN_APPENDED


@SIZES
@pytest.mark.parametrize("at_once", SENT_APPENDED)
def test_a_send_appends_its_body_once_and_little_else(app, growing, size, at_once):
    queue, calls = app.queue("orders"), 20
    queue.send("the queue is announced")
    queue.send(b"x" * size)  # the scripts are loaded
    before = appended(growing)
    for _ in range(calls):
        queue.send_many([b"x" * size] * at_once)
    assert (appended(growing) - before) / (calls * at_once) - size <= SENT_APPENDED[at_once]
