"""What the hot path asks of Redis, counted by Redis itself: a regression shows here before it shows in seconds."""

import pytest
import redis

from reliq.model.keys import QueueKeys, new_owner
from reliq.protocol.consumer import ConsumerSteps
from reliq.transport.store import Store
from tests.support.workers import eventually, working

MESSAGES, BATCH = 10_000, 100
ROUND_TRIPS = 0.05  #: a message
#: Every command a message, those inside of scripts too: one LREM, and a share of what a batch takes.
COMMANDS = 1.2


@pytest.fixture
def server(url):
    with redis.Redis.from_url(url) as client:
        yield client


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
    assert calls["lrem"] == MESSAGES
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
