"""The stream reader as Spark calls it, without a JVM: whenever its driver is killed, the next one goes on."""

from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from reliq.spark.options import Given
from reliq.spark.stream_reader import ReliqStreamReader
from tests.support.turns import Monitor
from tests.support.workers import eventually

LIMIT = ReadMaxRows(100)


@pytest.fixture
def driver(url):
    """A context manager: a reader that is dropped at its end, as by a kill."""

    @contextmanager
    def start():
        reader = ReliqStreamReader(Given({"queue": "orders"}, url).for_streaming())
        yield reader
        reader.stop()

    return start


def first_offset(reader):
    return reader.latestOffset(reader.initialOffset(), LIMIT)


def read(reader, start, end):
    rows = [batch.column("value").to_pylist() for one in reader.partitions(start, end) for batch in reader.read(one)]
    return [int(value) for values in rows for value in values]


def test_a_stream_killed_before_its_first_offset_is_stored_holds_nothing(driver, orders):
    orders.send_many(range(150))
    with driver() as killed:
        first_offset(killed)
    assert (orders.stats().ready, orders.stats().processing) == (150, 0)
    with driver() as restarted:
        end = first_offset(restarted)
        assert read(restarted, restarted.initialOffset(), end) == list(range(100))


def test_a_stream_killed_in_its_first_batch_replays_it_with_the_same_messages(driver, orders):
    orders.send_many(range(150))
    with driver() as killed:
        end = first_offset(killed)
        assert read(killed, killed.initialOffset(), end) == list(range(100))
    with driver() as restarted:
        assert read(restarted, restarted.initialOffset(), end) == list(range(100))
        after = restarted.latestOffset(end, LIMIT)
        assert after == {"stream": end["stream"], "batch": 2, "messages": 50}
        assert read(restarted, end, after) == list(range(100, 150))
        restarted.commit(after)
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 150)


def test_a_first_batch_whose_claim_never_came_is_replayed_empty(driver, orders):
    """Its sink may have written it: what a replay claimed, such a sink would ignore."""
    orders.send_many(range(150))
    with driver() as killed:
        end = first_offset(killed)
    with driver() as restarted:
        assert read(restarted, restarted.initialOffset(), end) == []
        after = restarted.latestOffset(end, LIMIT)
        assert read(restarted, end, after) == list(range(100))


def test_a_first_batch_that_is_planned_twice_claims_once(driver, orders):
    orders.send_many(range(150))
    with driver() as reader:
        end = first_offset(reader)
        plans = [read(reader, reader.initialOffset(), end) for _ in range(2)]
        assert plans == [list(range(100))] * 2
    assert orders.stats().processing == 100


def test_a_stream_of_an_empty_queue_has_no_batch(driver, orders):
    with driver() as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, LIMIT) == start
        orders.send("1")
        assert reader.latestOffset(start, LIMIT) == {**start, "batch": 1}


def test_available_now_reads_what_was_there_and_ends(driver, orders):
    orders.send_many(range(150))
    with driver() as reader:
        reader.prepareForTriggerAvailableNow()
        orders.send_many(range(150, 200))
        start, rows = reader.initialOffset(), []
        while (end := reader.latestOffset(start, LIMIT)) != start:
            rows.append(read(reader, start, end))
            start = end
        reader.commit(start)
    assert rows == [list(range(100)), list(range(100, 150))]


def test_what_a_stream_acks_ends_the_batch_of_its_messages(driver, app, orders):
    with app.batch(on_done=("reports", "done")) as batch:
        batch.send_many("orders", range(150))
    with driver() as reader:
        start, rows = reader.initialOffset(), 0
        for _ in range(2):
            end = reader.latestOffset(start, LIMIT)
            rows += len(read(reader, start, end))
            start = end
        reader.commit(start)
    progress = batch.progress()
    assert (rows, progress.handled, progress.open) == (150, 150, 0)
    assert Monitor(app.store).end_batches() == 1
    with app.queue("reports").consumer() as consumer:
        (report,) = consumer.claim()
        consumer.ack(report)
    assert report.headers["batch-handled"] == "150"


def test_a_stopped_stream_leaves_neither_a_thread_nor_a_connection(driver, orders, client):
    """Its beats are four hours apart."""
    orders.send_many(range(3))
    with driver() as reader:
        read(reader, reader.initialOffset(), first_offset(reader))
        thread = reader._heartbeat
        eventually(lambda: heartbeats_of(client))
    eventually(lambda: not thread.is_alive())
    eventually(lambda: not heartbeats_of(client))


def heartbeats_of(client):
    return [one for one in client.client_list() if one["name"].startswith("reliq:s")]
