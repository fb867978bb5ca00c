"""Queues that follow their messages: `track` finds them at once, `history` tells their lives; batches under kills."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

import reliq
from reliq.features.tracking.model import Cancellation
from reliq.model.found import Place
from tests.support.handlers import settled
from tests.support.workers import eventually, process, working


def names(found):
    return [event.name for event in found.history]


def test_the_biography_of_a_message(app):
    tries = []

    @app.handler("q", retry=reliq.fixed("20ms", limit=1))
    def run(message: reliq.Message) -> None:
        tries.append(message.id)
        if len(tries) < 4:
            raise ValueError

    queue = app.queue("q")
    queue.configure(history="1h", track=True)
    one = queue.send("x")
    with working(app, monitor=True):
        eventually(lambda: queue.stats().dead)
        found = queue.find(one)
        assert (found.place, found.reason) == (Place.DEAD, "max_failures")
        queue.dead.redrive()
        eventually(lambda: len(tries) == 4 and settled(app))
    found = queue.find(one)
    assert found.place is Place.DONE
    assert found.since == found.history[-1].at
    assert [name for name in names(found) if name != "released"] == [
        "enqueued", "claimed", "retried", "claimed", "dead:max_failures", "redriven", "claimed", "retried", "claimed",
        "acked",
    ]  # fmt: skip
    times = [event.at for event in found.history]
    assert times == sorted(times)
    assert queue.cancel(one) == Cancellation.DONE


def test_a_message_of_a_killed_worker_was_reclaimed(app, client):
    queue = app.queue("q")
    queue.configure(history="1h")
    one = queue.send("x")
    consumer = queue.consumer()
    consumer.claim()
    found = queue.find(one)
    assert found.since == found.history[-1].at
    assert found.history[-1].detail == consumer.id
    client.delete(*client.keys("*lease:*"))

    @app.handler("q")
    def run(message: reliq.Message) -> None:
        pass

    with working(app, monitor=True):
        eventually(lambda: settled(app))
    assert names(queue.find(one)) == ["enqueued", "claimed", "reclaimed", "claimed", "acked"]


def test_a_tracked_message_is_found_with_few_commands_in_a_long_queue(app, client):
    queue = app.queue("q")
    queue.configure(track=True)
    ids = queue.send_many(range(20_000))
    keyed = [queue.send(n, key="k") for n in range(3)]
    for place in (0, 7, 10_000, 19_999):
        client.config_resetstat()
        found = queue.find(ids[place])
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert (found.place, found.position) == (Place.READY, place)
        assert calls < 10
    assert queue.find(keyed[2]).waiting_for == "k"
    client.config_resetstat()
    assert queue.find("unknown") is None
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 20
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim(limit=500))
        assert queue.find(ids[0]) is None
        assert queue.find(ids[10_000]).position == 9_500
    queue.configure(track=False)
    assert client.keys("*followed*") == []
    assert queue.find(ids[10_000]).position == 9_500


def test_a_tracked_message_is_found_with_few_commands_among_priorities_and_keys(app, client):
    queue = app.queue("q")
    queue.configure(track=True)
    ids: dict[str, list[str]] = {priority: [] for priority in ("high", "normal", "low")}
    for _ in range(10):
        for priority, some in ids.items():
            some += queue.send_many(range(300), priority=priority)
        queue.send_many([reliq.NewMessage("x", key="k") for _ in range(300)])
    for some in ids.values():
        for place in (1, 1_500, 2_999):
            client.config_resetstat()
            found = queue.find(some[place])
            assert found.place is Place.READY
            assert found.message.id == some[place]
            assert client.info("commandstats")["cmdstat_evalsha"]["calls"] < 15


def test_messages_from_before_the_index_are_found_too(app):
    queue = app.queue("q")
    before = queue.send("x")
    queue.configure(track=True)
    with app.batch() as batch:
        batch.send("q", "y")  # its counts lie beside the index
    assert queue.find(before).place is Place.READY


def test_an_index_that_was_switched_off_answers_nothing_old(app):
    queue = app.queue("q")
    queue.configure(track=True)
    with app.batch() as batch:
        one = batch.send("q", "x")
    queue.configure(track=False)
    with queue.consumer() as consumer:
        consumer.ack(*consumer.claim())
    queue.configure(track=True)
    assert queue.find(one) is None


BATCH = """
import os, random, signal, time
import reliq

app = reliq.Reliq()

@app.handler("orders", retry=reliq.fixed("5ms", limit=3), dead_on=KeyError)
def order(message):
    number = message.json()
    if number % 50 == 7:
        raise KeyError(number)
    if number % 20 == 3 and not message.failures:
        raise ValueError(number)
"""


def batch_under_kills(app, tmp_path, messages, kills):
    """Workers are killed at any moment while a batch runs: one message at the end, after the last of the batch."""
    (tmp_path / "shop.py").write_text(BATCH)
    orders, seed = app.queue("orders"), random.Random(messages)
    arguments = ("worker", "shop:app", "--processes", "4", "--lease", "2", "--url", app.url)
    with process(*arguments, folder=tmp_path) as parent:
        with app.batch(on_dead=("reports", "x")) as batch:
            for first in range(0, messages, 500):
                batch.send_many("orders", range(first, min(first + 500, messages)))
        for _ in range(kills):
            time.sleep(seed.uniform(0.02, 0.2))
            pids = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
            if pids:
                os.kill(seed.choice(pids), signal.SIGKILL)
        report = eventually(lambda: app.queue("reports").stats().ready, timeout=120)
        eventually(lambda: batch.progress() is None)  # the record goes after the message was sent
        stats = orders.stats()
        assert (stats.ready, stats.processing, stats.delayed) == (0, 0, 0)
    assert report == 1
    with app.queue("reports").consumer() as consumer:
        (message,) = consumer.claim(limit=10)
    dead = len([number for number in range(messages) if number % 50 == 7])
    assert message.headers["batch-dead"] == str(dead) == str(stats.dead)
    assert message.headers["batch-handled"] == str(messages - dead)


def test_a_batch_under_kills_ends_once_and_after_its_last_message(app, tmp_path):
    batch_under_kills(app, tmp_path, 2_000, 6)


@pytest.mark.slow
def test_a_large_batch_under_many_kills(app, tmp_path):
    batch_under_kills(app, tmp_path, 10_000, 60)


def test_a_batch_of_many_costs_a_field_and_a_record(app, client):
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send_many("orders", ["x"] * 5_000)
    sizes = [client.memory_usage(key) or 0 for key in ("reliq:{orders}:followed", "reliq:{@batches}:open")]
    assert client.hlen("reliq:{orders}:followed") == 1
    assert sum(sizes) < 400  # with the keys' own overhead; a message is counted, not noted
