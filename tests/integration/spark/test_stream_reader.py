"""The stream reader as Spark calls it, without a JVM: whenever its driver is killed, the next one goes on."""

import json
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from reliq import ops
from reliq.cli import main
from reliq.errors import LeaseLost
from reliq.model.keys import QueueKeys
from reliq.spark.held import read_held, release
from reliq.spark.options import Given
from reliq.spark.pace import Pace
from reliq.spark.stream_reader import ReliqStreamReader
from tests.support.turns import Monitor
from tests.support.workers import eventually

LIMIT = ReadMaxRows(100)


@pytest.fixture
def driver(url):
    """A context manager: a reader that is dropped at its end, as by a kill."""

    @contextmanager
    def start(**options):
        reader = ReliqStreamReader(Given({"queue": "orders", **options}, url).for_streaming())
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


# --- the pace --------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_rate_limits_batches_and_is_saved_up_for_a_minute():
    clock = Clock()
    pace = Pace(10, None, 60.0, clock)
    assert pace.room(1000) == 10
    pace.claimed(10)
    assert pace.room(1000) == 0
    assert pace.until_room() == 0.1
    clock.now = 5.0
    assert (pace.room(1000), pace.room(7)) == (50, 7)
    clock.now = 1e6
    assert pace.room(1000) == 600


def test_a_batch_of_few_messages_waits_for_more_until_its_delay_is_over():
    clock = Clock()
    pace = Pace(None, 100, 60.0, clock)
    assert pace.room(1000) == 1000
    assert (pace.waits(99), pace.waits(100)) == (True, False)
    clock.now = 60.0
    assert not pace.waits(1)
    pace.claimed(1)
    assert pace.waits(99)


def test_a_stream_takes_no_more_than_its_rate(driver, orders):
    orders.send_many(range(150))
    with driver(maxMessagesPerSecond="20") as reader:
        reader._pace = Pace(20, None, 60.0, clock := Clock())
        start, sizes = reader.initialOffset(), []
        for second in (0, 0, 1, 4):
            clock.now = second
            end = reader.latestOffset(start, LIMIT)
            sizes.append(len(read(reader, start, end)) if end != start else 0)
            start = end
    assert sizes == [20, 0, 20, 60]


def test_available_now_keeps_to_the_rate_and_reads_all(driver, orders):
    orders.send_many(range(30))
    with driver(maxMessagesPerSecond="20") as reader:
        reader.prepareForTriggerAvailableNow()
        start, rows = reader.initialOffset(), []
        while (end := reader.latestOffset(start, LIMIT)) != start:
            rows += read(reader, start, end)
            start = end
    assert rows == list(range(30))


def test_a_stream_waits_for_its_smallest_batch(driver, orders):
    orders.send_many(range(9))
    with driver(minMessagesPerBatch="10", maxBatchDelay="1h") as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, LIMIT) == start
        orders.send(9)
        assert read(reader, start, reader.latestOffset(start, LIMIT)) == list(range(10))
    orders.send("late")
    with driver(minMessagesPerBatch="10", maxBatchDelay="1ms") as reader:
        assert first_offset(reader)["batch"] == 1


def test_a_batch_that_has_lost_messages_fails_the_query_if_that_is_asked_for(driver, app, orders):
    orders.send_many(range(5))
    with driver() as killed:
        first = first_offset(killed)
        read(killed, killed.initialOffset(), first)
        orders.send_many(range(5, 8))
        second = killed.latestOffset(first, LIMIT)
    (consumer,) = app.store.call(ops.members(QueueKeys("orders").consumers))
    app.store.call(ops.end(QueueKeys("orders"), consumer))
    Monitor(app.store).scan()
    with driver(failOnDataLoss="true") as restarted, pytest.raises(LeaseLost, match=r"had 3 messages and has 0.*fail"):
        read(restarted, first, second)
    with driver() as restarted:
        assert read(restarted, first, second) == []
        assert read(restarted, second, restarted.latestOffset(second, LIMIT)) == [5, 6, 7]


# --- reliq spark claims ----------------------------------------------------------------------------------------------


def test_claims_of_an_abandoned_stream_are_listed_and_released(driver, app, orders, url, capsys):
    orders.send_many(range(5))
    with driver() as killed:
        end = first_offset(killed)
        read(killed, killed.initialOffset(), end)
    stream = end["stream"]

    def claims(*arguments: str) -> tuple[int, str]:
        status = main.main(["spark", "claims", "--url", url, *arguments])
        return status, "".join(capsys.readouterr())

    status, text = claims()
    assert status == 0
    assert f"{stream} batch 1 of orders: 5 messages; driver " in text
    (one,) = json.loads(claims("--queue", "orders", "--json")[1])["claims"]
    assert (one["stream"], one["batch"], one["messages"], one["may_live"]) == (stream, 1, 5, True)
    assert "may live" in claims("--release", stream)[1]
    assert "holds nothing" in claims("--release", "unknown", "--force")[1]
    assert orders.stats().processing == 5
    status, text = claims("--release", stream, "--force")
    assert (status, text) == (0, f"5 messages of stream {stream} go back with the next look of a monitor\n")
    Monitor(app.store).scan()
    assert (orders.stats().ready, orders.stats().processing) == (5, 0)
    assert claims() == (0, "no stream holds messages\n")


def test_a_driver_that_has_missed_a_renewal_may_be_released(driver, app, orders, url):
    orders.send_many(range(5))
    with driver() as killed:
        end = first_offset(killed)
        read(killed, killed.initialOffset(), end)
    keys, consumer = QueueKeys("orders"), f"s{end['stream']}.1"
    ends = app.store.call(ops.lease_end(keys, consumer))
    app.store.call(ops.command("SET", keys.lease(consumer), ends - 5 * 3600 * 1000))
    held = app.store.run(read_held(["orders"]))
    assert [one.may_live for one in held] == [False]
    assert app.store.run(release(held, end["stream"], force=False)) == 5
