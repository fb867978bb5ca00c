"""The stream reader as Spark calls it, without a JVM: whenever its driver is killed, the next one goes on."""

import json
from contextlib import contextmanager

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from reliq import ops
from reliq.cli import main
from reliq.errors import InvalidSetting, LeaseLost
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.spark.claims import Claims
from reliq.spark.held import read_held, release
from reliq.spark.options import Given
from reliq.spark.pace import Pace
from reliq.spark.stream_reader import ReliqStreamReader
from reliq_monitor.reclaim import take_back
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
        if reader._heartbeat is not None:
            reader._heartbeat.join(timeout=30)  # its last beat renews the leases

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
        assert after == {**end, "batch": 2, "messages": 50}
        assert read(restarted, end, after) == list(range(100, 150))
        restarted.commit(after)
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, 150)


def test_the_checkpoint_of_a_stream_of_another_queue_is_refused_before_anything_is_claimed(driver, app, orders):
    orders.send_many(range(150))
    app.queue("mail").send("x")
    with driver() as killed:
        start = first_offset(killed)
        read(killed, killed.initialOffset(), start)
        end = killed.latestOffset(start, LIMIT)
    for call in (lambda reader: reader.partitions(start, end), lambda reader: reader.latestOffset(end, LIMIT)):
        with driver(queue="mail") as other, pytest.raises(InvalidSetting, match="queue 'orders', not of 'mail'"):
            call(other)
    assert (orders.stats().processing, app.queue("mail").stats().ready) == (50, 1)
    del start["queue"], end["queue"]  # as before offsets named it
    with driver() as restarted:
        assert read(restarted, start, end) == list(range(100, 150))


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


@pytest.mark.parametrize("key", [None, "k"])
def test_what_a_driver_claims_that_another_one_has_replaced_comes_again(driver, app, orders, key):
    def send(*numbers):
        orders.send_many([NewMessage(one, key=key) for one in numbers])

    send(0, 1)
    with driver() as replaced, driver() as running:
        first = first_offset(replaced)
        assert read(replaced, replaced.initialOffset(), first) == [0, 1]
        send(2, 3)
        second = running.latestOffset(first, LIMIT)
        assert read(running, first, second) == [2, 3]
        assert running.latestOffset(second, LIMIT) == second
        send(4, 5)
        assert replaced.latestOffset(first, LIMIT) == second  # which is in the log already: Spark ends this query
        orders.send(6)
        third = running.latestOffset(second, LIMIT)
        assert read(running, second, third) == [6]
        running.commit(third)
        Monitor(app.store).scan()
        assert batches(running, third) == [[4, 5]]


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


# --- runs of messages of one key -------------------------------------------------------------------------------------

KEYS = QueueKeys("orders")


def send_keyed(orders, numbers, keys=10, **options):
    orders.send_many([NewMessage(str(number), key=f"k{number % keys}", **options) for number in numbers])


def batches(reader, start, limit=ReadMaxRows(10_000)):
    """Consume until nothing is left; the numbers of each micro-batch."""
    found = []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(read(reader, start, end))
        start = end
    reader.commit(start)
    return found


def in_order(numbers, keys=10) -> bool:
    """Whether those of each key are."""
    return all(some == sorted(some) for some in ([one for one in numbers if one % keys == key] for key in range(keys)))


def test_messages_of_few_keys_need_no_more_batches_than_messages_without(driver, app, orders):
    send_keyed(orders, range(2000))
    with driver() as reader:
        (rows,) = batches(reader, reader.initialOffset())
    assert sorted(rows) == list(range(2000))
    assert in_order(rows)
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.consumers, stats.counters["acked"]) == (0, 0, 0, 2000)
    left = app.store.call(ops.command("KEYS", "reliq:{orders}:*"))
    assert not {key.decode().removeprefix("reliq:{orders}:").partition(":")[0] for key in left} & {
        "received", "receipts", "early", "attempt", "active", "waiting", "processing",
    }  # fmt: skip


def test_keys_and_messages_without_one_share_a_batch_and_its_limit(driver, orders):
    orders.send_many(range(1000, 1300))
    send_keyed(orders, range(900), keys=3)
    orders.send_many(range(1300, 1500))
    with driver() as reader:
        found = batches(reader, reader.initialOffset(), ReadMaxRows(500))
    assert [len(one) for one in found] == [500, 500, 400]
    rows = [number for one in found for number in one]
    assert sorted(rows) == [*range(900), *range(1000, 1500)]
    assert in_order([one for one in rows if one < 900], keys=3)


def test_a_run_has_a_largest_length_and_its_key_goes_on_with_the_next_batch(driver, orders):
    send_keyed(orders, range(2500), keys=1)
    with driver() as reader:
        found = batches(reader, reader.initialOffset())
    assert [len(one) for one in found] == [1001, 1001, 498]
    assert [number for one in found for number in one] == list(range(2500))


def test_a_run_is_read_by_one_task(driver, orders):
    send_keyed(orders, range(2000), keys=7)
    with driver(numPartitions="3") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10_000))
        tasks = [
            {int(value) % 7 for batch in reader.read(one) for value in batch.column("value").to_pylist()}
            for one in reader.partitions(start, end)
        ]
    assert len(tasks) == 3
    assert sum(map(len, tasks)) == 7


def test_nobody_gets_a_key_of_which_a_batch_has_messages(driver, orders):
    send_keyed(orders, range(100), keys=2)
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        assert sorted(read(reader, start, end)) == [0, 1, 2, 4, 6, 8, 10, 12, 14, 16]
        with orders.consumer() as consumer:
            assert consumer.claim(10) == []
        reader.commit(end)
        with orders.consumer() as consumer:
            assert sorted(int(one.body) for one in consumer.claim(10)) == [3, 18]


@pytest.mark.parametrize("calls", range(1, 14))
def test_a_driver_killed_within_a_claim_of_runs_has_a_batch_in_order(driver, app, orders, calls):
    """Killed behind each of its calls."""
    send_keyed(orders, range(60), keys=3)
    claims = Claims(KEYS, 3600.0)
    steps = claims.claim("5eed", 2, 50)
    answer, done = None, None
    for _ in range(calls):
        try:
            request = steps.send(answer)
        except StopIteration as ended:
            done = ended.value
            break
        answer = app.store.call(request)
    start, rows = {"stream": "5eed", "batch": 1, "messages": 0}, []
    with driver() as restarted:
        end = restarted.latestOffset(start, ReadMaxRows(50))
        assert done in (None, end["messages"])
        rows += read(restarted, start, end)
    with driver() as restarted:
        assert read(restarted, start, end) == rows
        rows += [number for one in batches(restarted, end) for number in one]
    assert sorted(rows) == list(range(60))
    assert in_order(rows, keys=3)


def test_rows_show_whether_a_message_of_a_run_was_delivered_before(driver, app, orders):
    send_keyed(orders, range(6), keys=1, headers={"region": "eu"})
    with driver() as killed:
        end = first_offset(killed)
        shown = rows_of(killed, killed.initialOffset(), end)
    assert [(row["redelivered"], row["deliveries"], row["headers"]) for row in shown] == [
        (False, 0, [("region", "eu")])
    ] * 6
    expire(app)
    assert Monitor(app.store).return_due() == 6
    assert orders.stats().ready == 6
    with driver() as restarted:
        shown = rows_of(restarted, restarted.initialOffset(), first_offset(restarted))
        assert [(row["value"], row["redelivered"]) for row in shown] == [(b"%d" % one, True) for one in range(6)]


def rows_of(reader, start, end):
    return [row for one in reader.partitions(start, end) for batch in reader.read(one) for row in batch.to_pylist()]


def expire(app) -> None:
    """The time of all messages in flight is over."""
    names = app.store.call(ops.command("ZRANGE", KEYS.received, 0, -1))
    app.store.call(ops.command("ZADD", KEYS.received, *(part for name in names for part in (1, name))))


def test_a_batch_of_runs_that_was_given_back_is_missed(driver, app, orders):
    send_keyed(orders, range(20), keys=2)
    with driver() as killed:
        first = first_offset(killed)
        read(killed, killed.initialOffset(), first)
        send_keyed(orders, range(20, 40), keys=2)
        second = killed.latestOffset(first, LIMIT)
    assert second["messages"] == 20
    expire(app)
    Monitor(app.store).return_due()
    with driver(failOnDataLoss="true") as restarted, pytest.raises(LeaseLost, match="had 20 messages and has 0"):
        read(restarted, first, second)
    with driver() as restarted:
        assert read(restarted, first, second) == []
        rows = [number for one in batches(restarted, second) for number in one]
    assert sorted(rows) == list(range(20, 40))
    assert in_order(rows, keys=2)


def test_a_beat_renews_the_runs_too(driver, app, orders):
    send_keyed(orders, range(6), keys=1)
    with driver(lease="1s") as reader:
        read(reader, reader.initialOffset(), first_offset(reader))
        expire(app)
        eventually(lambda: app.store.call(ops.command("ZCOUNT", KEYS.received, 2, "+inf")) == 6)
        assert Monitor(app.store).return_due() == 0
    assert orders.stats().processing == 6


def test_what_is_committed_late_is_not_read_again_if_it_is_still_in_flight(driver, app, orders):
    send_keyed(orders, range(6), keys=1)
    with driver() as reader:
        end = first_offset(reader)
        read(reader, reader.initialOffset(), end)
        expire(app)
        reader.commit(end)
    assert Monitor(app.store).return_due() == 0
    assert (orders.stats().ready, orders.stats().counters["acked"]) == (0, 6)


def test_a_run_ends_before_an_expired_message_which_dies_when_it_is_its_turn(driver, orders):
    orders.send_many([NewMessage("0", key="k"), NewMessage("1", key="k", ttl=0.001), NewMessage("2", key="k")])
    with driver() as reader:
        assert [number for one in batches(reader, reader.initialOffset()) for number in one] == [0, 2]
    assert [letter.reason for letter in orders.dead.list()] == ["expired"]


# --- runs and limits -------------------------------------------------------------------------------------------------


def sizes(driver, **options) -> list[int]:
    """How many messages each batch of 2,000 messages of 10 keys has, all in the order of their keys."""
    with driver(**options) as reader:
        found = batches(reader, reader.initialOffset())
    assert sorted(number for one in found for number in one) == list(range(2000))
    assert in_order([number for one in found for number in one])
    return [len(one) for one in found]


@pytest.mark.parametrize(
    "limits", [{"rate": "100000/s", "burst": 5000}, {"key_rate": "100000/s"}, {"fair": True}, {"key_concurrency": 2}]
)
def test_limits_that_let_all_through_need_no_more_batches(driver, orders, limits):
    orders.configure(**limits)
    send_keyed(orders, range(2000))
    assert sizes(driver) == [2000]


def test_a_run_takes_no_more_than_the_rate_of_the_queue_allows(driver, orders):
    orders.configure(rate="1/d", burst=700)
    send_keyed(orders, range(2000))
    with driver() as reader:
        (rows,) = batches(reader, reader.initialOffset())
    assert (len(rows), in_order(rows)) == (700, True)
    orders.configure(rate="1/d", burst=1800)
    with driver() as reader:
        assert sum(map(len, batches(reader, reader.initialOffset()))) == 1100, "tokens that were taken stay taken"


def test_a_run_takes_no_more_than_the_rate_of_its_key_allows(driver, orders):
    orders.configure(key_rate="1/d")
    send_keyed(orders, range(2000))
    with driver() as reader:
        found = batches(reader, reader.initialOffset())
    assert [len(one) for one in found] == [10], "the bucket of a key has one token"
    assert (orders.stats().delayed, orders.stats().waiting) == (10, 1980)


def test_a_batch_of_a_fair_queue_has_as_many_of_each_key(driver, orders):
    orders.configure(fair=True)
    send_keyed(orders, range(2000))
    with driver() as reader:
        start = reader.initialOffset()
        rows = read(reader, start, reader.latestOffset(start, ReadMaxRows(500)))
    assert [sum(one % 10 == key for one in rows) for key in range(10)] == [50] * 10


def test_a_run_pays_the_costs_of_its_messages(driver, orders):
    orders.configure(rate="1/d", burst=1000)
    send_keyed(orders, range(2000), cost=10)
    with driver() as reader:
        assert sum(map(len, batches(reader, reader.initialOffset()))) == 100


def test_messages_of_a_key_that_is_held_back_come_in_their_order(driver, orders):
    orders.configure(rate="1/d", burst=5)
    send_keyed(orders, range(20), keys=2)
    with driver() as reader:
        (rows,) = batches(reader, reader.initialOffset())
    orders.configure(rate=None, burst=None)
    with driver() as reader:
        rows += [number for one in batches(reader, reader.initialOffset()) for number in one]
    assert (sorted(rows), in_order(rows, 2)) == (list(range(20)), True)


def test_a_batch_takes_no_run_where_concurrency_counts_what_it_has_claimed(driver, app, orders):
    orders.configure(concurrency=30)
    send_keyed(orders, range(60), keys=20)
    with driver() as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, LIMIT)
        assert sorted(read(reader, start, end)) == list(range(20))
        with orders.consumer() as consumer:
            orders.send_many(range(100, 120))
            assert len(consumer.claim(100)) == 10


@pytest.mark.parametrize("state", ["held", "breaker"])
def test_a_queue_that_is_held_gives_a_batch_nothing(driver, app, orders, state):
    orders.configure(rate="1000/s", burst=1000)
    send_keyed(orders, range(20), keys=2)
    if state == "held":
        app.store.call(ops.command("HSET", KEYS.flow, "held_until", "9" * 14))
    else:
        orders.open_breaker("1h")
    claims = Claims(KEYS, 3600.0)
    assert app.store.run(claims.claim("5eed", 2, 50)) == 0
    (part,) = claims._parts("s5eed.2")
    app.store.call(ops.command("LMOVE", KEYS.messages, KEYS.processing("s5eed.2"), "RIGHT", "LEFT"))
    heads = [Message.decode("orders", one) for one in app.store.call(ops.from_tail(KEYS.processing("s5eed.2"), 0, 1))]
    assert app.store.run(part.take(heads, 50, evenly=True)) == 0, "held after its first messages were claimed"


def test_a_claim_passes_over_what_was_cancelled_before_its_consumer_died(app, orders):
    cancelled, _ = orders.send("x"), orders.send("y")
    with orders.consumer() as consumer:
        consumer.claim(limit=2)
        assert orders.cancel(cancelled) == "told"
        app.store.run(take_back(KEYS, consumer.id, known_dead=True))
        assert app.store.run(Claims(KEYS, 3600.0).claim("5eed", 2, 50)) == 1
    assert orders.stats().counters["cancelled"] == 1


def test_large_bodies_and_batches_of_the_application_end_with_their_run(driver, app, orders):
    with app.batch() as batch:
        batch.send_many("orders", [NewMessage(f"{number}".rjust(5000), key="k") for number in range(6)])
    with driver() as reader:
        assert batches(reader, reader.initialOffset()) == [list(range(6))]
    progress = batch.progress()
    assert (progress.handled, progress.open) == (6, 0)
    assert app.store.call(ops.command("EXISTS", KEYS.bodies)) == 0


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
    with driver(minMessagesPerBatch="10") as reader:
        reader._pace = Pace(None, 10, 60.0, clock := Clock())
        assert first_offset(reader)["batch"] == 0
        clock.now = 60.0
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


def test_runs_of_an_abandoned_stream_are_counted_and_released(driver, app, orders):
    send_keyed(orders, range(20), keys=2)
    orders.send_many(range(100, 105))
    with driver() as killed:
        end = first_offset(killed)
        read(killed, killed.initialOffset(), end)
    held = app.store.run(read_held(["orders"]))
    assert [one.messages for one in held] == [25]
    assert app.store.run(release(held, end["stream"], force=True)) == 25
    Monitor(app.store).scan()
    assert (orders.stats().ready, orders.stats().processing) == (25, 0)
    with driver() as other:
        rows = [number for one in batches(other, other.initialOffset()) for number in one]
    assert in_order([one for one in rows if one < 100], keys=2)


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
