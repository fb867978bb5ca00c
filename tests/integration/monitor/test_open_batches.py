"""A monitor of thousands of open batches asks little about them, and notices the end of each at its next look."""

import threading

import pytest

from reliq import NewMessage
from reliq.features.batches import duty
from reliq.features.batches import ops as own
from reliq.features.batches.duty import Batches
from reliq.features.batches.model import CLOSED, checked_end, new_batch_id
from reliq.model.keys import BATCHES
from reliq.ops.schema import Batch as Field
from reliq.transport.notices import Notices
from reliq.transport.store import Store
from reliq_monitor import known
from tests.support.turns import Monitor
from tests.support.workers import eventually

MANY = 2000
LEARNED = 2 + MANY // duty.LOOKS  #: turns after which a monitor knows of all of them


def opened(app, count):
    """Batches whose producers still send."""
    batches = [new_batch_id() for _ in range(count)]
    end = checked_end(("ends", "end"), "on_done", {})
    app.store.call([own.batch_open(batch, {Field.DONE: end, Field.DEAD: b""}, "") for batch in batches])
    return batches


def closed(app, count):
    """Batches that wait for one message each."""
    batches = opened(app, count)
    app.store.call([own.batch_enlist(batch, "orders") for batch in batches])
    app.queue("orders").send_many([NewMessage("x").of_batch(batch) for batch in batches])
    app.store.call([own.batch_close(batch, CLOSED) for batch in batches])


class Turns:
    """A monitor that has learned what there is; `told`: whether the server tells it of changes."""

    def __init__(self, app, client, told=True):
        self._client = client
        self._monitor = Monitor(Store(app.url))
        self._calls = self._monitor._whole._calls
        if told:
            self._calls.begin_notices()
        for _ in range(LEARNED):
            self.next()

    def next(self):
        """Have a turn; return how many batches have ended."""
        self._calls.take_notices()
        return self._monitor.perform(Batches)

    def cost(self):
        """Have a turn; return how many commands it took."""
        before = self._client.info("stats")["total_commands_processed"]
        self.next()
        return self._client.info("stats")["total_commands_processed"] - before - 1


def test_a_turn_over_idle_batches_takes_no_command(app, client):
    closed(app, MANY)
    assert Turns(app, client).cost() == 0


def test_where_the_server_tells_of_no_changes_it_takes_one_for_a_thousand(app, client):
    closed(app, MANY)
    cost = Turns(app, client, told=False).cost()
    assert cost <= 2 * (MANY // 1000) + 1


def test_a_batch_in_many_partitions_is_asked_about_in_one_place(app, client):
    app.queue("orders").configure(partitions=16)
    for _ in range(200):
        with app.batch(on_done=("ends", "end")) as batch:
            batch.send_many("orders", range(64))
    turns = Turns(app, client, told=False)
    assert turns.cost() <= 1 + 16


def test_few_of_those_whose_producers_still_send_are_looked_at(app, client):
    opened(app, MANY)
    assert Turns(app, client).cost() <= duty._INCOMPLETE + 1


@pytest.fixture
def among_many(app):
    """A batch in the middle of the others, of which one message is handled next."""

    def send(partitions=1):
        app.queue("last").configure(partitions=partitions)
        closed(app, MANY // 2)
        with app.batch(on_done=("ends", "last")) as batch:
            batch.send_many("last", range(8))
        closed(app, MANY // 2)

    return send


def handle(queue, limit=100):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit=limit)
        consumer.ack(*messages)
        return [message.body.decode() for message in messages]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("partitions", [1, 4])
def test_the_end_of_one_among_thousands_is_noticed_at_the_next_turn(app, client, among_many, told, partitions):
    among_many(partitions)
    turns = Turns(app, client, told)
    for _ in range(8):
        assert turns.next() == 0
        assert handle(app.queue("last"), limit=1)
    assert turns.next() == 1
    assert handle(app.queue("ends")) == ["last"]


@pytest.mark.parametrize("told", [True, False])
def test_a_batch_closed_after_its_messages_ended_is_noticed_at_the_next_turn(app, client, told):
    batches = opened(app, MANY)
    turns = Turns(app, client, told)
    app.store.call(own.batch_close(batches[-1], CLOSED))
    assert turns.next() == 1


@pytest.mark.parametrize("told", [True, False])
def test_the_ends_of_an_inner_and_its_outer_batch_are_noticed_within_two_turns(app, client, told):
    with app.batch(on_done=("ends", "outer")) as outer, outer.batch() as inner:
        inner.send("last", 1)
    opened(app, MANY)
    turns = Turns(app, client, told)
    handle(app.queue("last"))
    assert turns.next() + turns.next() == 2
    assert handle(app.queue("ends")) == ["outer"]


def test_more_than_one_turn_looks_at_that_end_at_once_all_end(app, client, monkeypatch):
    monkeypatch.setattr(duty, "LOOKS", 100)
    closed(app, 250)
    turns = Turns(app, client)
    assert len(handle(app.queue("orders"), limit=1000)) == 250
    assert [turns.next() for _ in range(3)] == [100, 100, 50]
    assert client.exists(BATCHES) == 0


def test_a_batch_that_an_earlier_version_has_closed_is_found_by_and_by(app, client, monkeypatch):
    """That version has not noted that the batch is complete; so it is, too, if the note was lost."""
    monkeypatch.setattr(duty, "_INCOMPLETE", 10)
    batches = opened(app, 100)
    turns = Turns(app, client)
    old = batches[50]
    before = client.zscore(BATCHES, old)
    app.store.call(own.batch_close(old, CLOSED))
    client.zadd(BATCHES, {old: before})
    assert sum(turns.next() for _ in range(10)) == 1


def test_an_end_of_which_a_notice_was_lost_is_found_by_the_slow_look(app, client, url, monkeypatch):
    monkeypatch.setattr(Notices, "take", lambda self: None)
    monkeypatch.setattr(known, "SLOW_LOOK", 1.0)
    closed(app, 3)
    monitor, stopping = Monitor(Store(url), 0.1), threading.Event()
    thread = threading.Thread(target=monitor.run, args=(stopping,))
    thread.start()
    try:
        eventually(lambda: monitor._whole._calls.known.get("reliq:{orders}:followed", "batches"))
        handle(app.queue("orders"))
        eventually(lambda: app.queue("ends").stats().ready == 3)
    finally:
        stopping.set()
        thread.join()
