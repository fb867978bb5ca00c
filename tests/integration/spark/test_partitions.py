"""Spark and a queue with partitions: rows lie in the home of their key, the others evenly; reads see all of them."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceStreamReader

from reliq import ops
from reliq.errors import JobClosed
from reliq.features.staging.steps import Job, PartWriter, commit, roll_forward
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import BUCKETS, Layout, bucket_of, bucket_of_key
from reliq.ops.chunks import chunks_of
from reliq.protocol.stats import stats_of
from reliq.spark.spread import Buckets, Spread, first_home_by_bucket
from tests.support.turns import Monitor

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def monitor(app):
    return Monitor(app.store)


@pytest.fixture
def four(orders, monitor):
    """The queue, with four partitions."""
    orders.configure(partitions=4)
    tend(monitor)
    return orders


def tend(monitor) -> int:
    monitor.scan()
    return monitor.tend_partitions()


def write(df, **options):
    df.write.format("reliq").options(keyAs="order", **options).mode("append").save()


def read(spark, **options):
    return spark.read.format("reliq").options(queue="orders", **options).load()


def rows(spark, count: int, *columns: str):
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS id", "CAST(id AS STRING) AS value", *columns)


def layout_of(app) -> Layout:
    return app.store.call(ops.layout(QueueKeys("orders")))


def resized(layout: Layout, count: int) -> Layout:
    there = len(layout.every("orders"))
    return layout.resized(count, map(str, range(there, max(there, count))))


def ready(app) -> list[int]:
    return [app.store.run(stats_of(QueueKeys(name))).ready for name in NAMES]


def listed(app, name: str) -> list:
    """The ready messages of one partition, those that wait for their key included."""
    physical, found = QueueKeys(name), []
    elements = [
        *app.store.call(ops.from_tail(physical.messages, 0, 10_000)),
        *(member[32:] for member in app.store.call(ops.command("ZRANGE", physical.waiting, 0, -1))),
    ]
    for element in elements:
        found.append(Message.decode("orders", element))
    return found


# --- which partition, without Spark ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 9), (9, 2), (4, 1)])
@pytest.mark.parametrize("moving", [False, True])
def test_the_home_of_each_bucket_is_the_one_to_which_a_producer_goes_first(before, after, moving):
    layout = resized(resized(Layout(), before).finished(), after)
    layout = layout if moving else layout.finished()
    homes, every = first_home_by_bucket(layout), layout.every("orders")
    assert [every[home] for home in homes] == [layout.homes("orders", bucket)[0] for bucket in range(BUCKETS)]


def test_rows_without_a_key_go_to_all_partitions_evenly_and_tasks_begin_with_different_ones():
    layout = resized(Layout(), 4).finished()
    counts = dict.fromkeys(NAMES, 0)
    for task in range(8):
        spread = Spread(lambda _: layout, task)
        for size in (1000, 150, 10):
            buckets = Buckets({"body": pa.array([b""] * size)})
            seen = []
            for name, share in spread.shares("orders", None, buckets):
                assert share is not None
                counts[name] += len(share)
                seen += share.tolist()
            assert sorted(seen) == list(range(size))
    assert sum(counts.values()) == 8 * 1160
    assert max(counts.values()) - min(counts.values()) <= 0.1 * 8 * 1160 / 4


def test_the_ordering_key_decides_then_the_dedup_key_and_null_is_no_key():
    columns = {"key": ["a", None, "a", None], "dedup": ["x", "x", None, None]}
    fields = {
        name: pa.array([one and one.encode() for one in some], pa.large_binary()) for name, some in columns.items()
    }
    wanted = [bucket_of(NewMessage("", key=key, dedup_key=dedup)) for key, dedup in zip(*columns.values(), strict=True)]
    found = Buckets({**fields, "body": fields["key"]}).of_rows
    assert found.tolist() == [-1 if one is None else one for one in wanted]
    none = Buckets({"key": pa.nulls(3, pa.large_binary()), "body": pa.nulls(3, pa.large_binary())})
    assert np.all(none.of_rows == -1)


# --- with Spark ------------------------------------------------------------------------------------------------------


def test_each_row_is_written_once_those_with_a_key_at_home(spark, app, four):
    keys = "IF(id % 2 = 0, CONCAT('k', id % 50), NULL) AS key"
    write(rows(spark, 2000, keys, "IF(id % 10 = 1, CONCAT('d', id), NULL) AS dedup_key"), queue="orders", job="load")
    layout, found, free = layout_of(app), [], []
    for name in NAMES:
        there = listed(app, name)
        found += [int(message.id) for message in there]
        for message in there:
            if message.key:
                assert layout.homes("orders", bucket_of_key(message.key)) == [name]
        free.append(sum(1 for message in there if not message.key and int(message.id) % 10 != 1))
    assert sorted(found) == list(range(2000))
    assert free == [200] * 4
    for number in (1, 11, 21):  # a producer finds what Spark has written under a dedup key
        assert four.send("again", dedup_key=f"d{number}") == str(number)
    assert four.stats().ready == 2000
    write(rows(spark, 2000, keys), queue="orders", job="load")  # it was committed before
    assert four.stats().ready == 2000
    assert app.store.call(ops.command("KEYS", "*:staged:*")) == app.store.call(ops.command("KEYS", "*:parts:*")) == []


def test_a_job_that_was_committed_is_known_with_another_number_of_partitions(spark, app, orders, monitor):
    write(rows(spark, 10), queue="orders", job="load")
    orders.configure(partitions=4)
    tend(monitor)
    write(rows(spark, 10), queue="orders", job="load")
    assert (orders.stats().ready, ready(app)[0]) == (10, 10)


def test_rows_that_name_their_queue_or_topic_are_spread_too(spark, app, four):
    app.subscribe("orders", "order.*")
    app.subscribe("audit", "#")
    write(rows(spark, 1000, "'order.new' AS topic"))
    write(rows(spark, 1000, "IF(id % 5 < 4, 'orders', 'audit') AS queue"))
    assert ready(app) == [450] * 4
    assert app.queue("audit").stats().ready == 1200


def test_a_key_that_moves_stays_in_order_behind_the_messages_before_the_change(spark, app, four, monitor):
    for number in range(20):
        four.send("first", key=f"k{number}")
    four.configure(partitions=3)
    assert layout_of(app).moving
    write(rows(spark, 20, "CONCAT('k', id) AS key"), queue="orders")
    seen: dict[str, list[str]] = {}
    with four.consumer() as consumer:
        while sum(map(len, seen.values())) < 40:
            messages = consumer.claim(100, wait=0.1)
            keys = [message.key for message in messages]
            assert len(set(keys)) == len(keys)  # one at a time
            for message in messages:
                seen.setdefault(message.key, []).append(message.body.decode())
            consumer.ack(*messages)
            tend(monitor)
    assert all(bodies == ["first", key[1:]] for key, bodies in seen.items())


def test_a_read_sees_all_partitions(spark, app, four):
    write(
        spark.range(0, 400, 1, 2).selectExpr("CAST(id AS STRING) AS id", "repeat('x', 2000) AS value"), queue="orders"
    )
    found = read(spark)
    assert found.rdd.getNumPartitions() == 4
    assert read(spark, numPartitions=8).rdd.getNumPartitions() == 8
    assert sorted(int(row.id) for row in found.collect()) == list(range(400))
    assert {(row.queue, row.value) for row in found.collect()} == {("orders", b"x" * 2000)}
    with four.consumer() as consumer:
        while messages := consumer.claim(1000, wait=0.1):
            for message in messages:
                consumer.dead(message, "broken")
    dead = read(spark, state="dead")
    assert sorted(int(row.id) for row in dead.collect()) == list(range(400))
    assert dead.where("reason = 'rejected'").count() == 400
    write(rows(spark, 400, "600000L AS delay_ms"), queue="orders")
    assert sorted(int(row.id) for row in read(spark, state="delayed").collect()) == list(range(400))


def test_a_stream_consumes_all_partitions_and_acks_them(spark, app, four, tmp_path):
    if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        pytest.skip("reading a queue as a stream needs PySpark 4.2, see test_versions.py")
    from tests.integration.spark.test_streams import forget_commit, from_reliq, run

    write(rows(spark, 500, "IF(id % 5 = 0, CONCAT('k', id), NULL) AS key"), queue="orders")
    stream = from_reliq(spark, maxMessagesPerBatch=200).select("id")
    out = str(tmp_path / "out")
    run(stream.writeStream.format("parquet").option("path", out), tmp_path)
    assert sorted(int(row.id) for row in spark.read.parquet(out).collect()) == list(range(500))
    # The last micro-batch is not acked yet: Spark has not asked for another one. Here it is replayed.
    forget_commit(tmp_path)
    four.configure(partitions=2)
    write(rows(spark, 100).selectExpr("CONCAT('1', id) AS id", "value"), queue="orders")
    run(stream.writeStream.format("parquet").option("path", out), tmp_path)
    found = [row.id for row in spark.read.parquet(out).collect()]
    assert sorted(found) == sorted([*map(str, range(500)), *(f"1{number}" for number in range(100))])
    assert four.stats().ready == 0


def test_a_message_follows_the_last_row_of_all_partitions(spark, app, four, monitor):
    write(rows(spark, 700), queue="orders", onHandled="reports")
    (batch,) = app.batches()
    assert (batch.sent, batch.open) == (700, 700)
    with four.consumer() as consumer:
        while messages := consumer.claim(1000, wait=0.1):
            consumer.ack(*messages)
    assert monitor.end_batches() == 1
    with app.queue("reports").consumer() as consumer:
        (report,) = consumer.claim()
    assert report.headers["batch-handled"] == "700"


def test_what_a_partition_has_no_room_for_refuses_the_whole_job(spark, app, four):
    four.configure(max_length=400)
    with pytest.raises(PySparkException, match="queue 'orders' holds 0 of at most 100 messages; none of the"):
        write(rows(spark, 500), queue="orders")
    assert four.stats().ready == 0


# --- a partition is given up -----------------------------------------------------------------------------------------


def staged_in(app, queue: str) -> tuple[Job, PartWriter]:
    job = Job(QueueKeys("orders"))
    writer = PartWriter(job, queue, "0")
    app.store.run(writer.add(chunks_of([NewMessage("body", id="a").element(1)])))
    return job, writer


def test_a_partition_is_kept_while_a_job_may_add_to_it(app, four, monitor):
    job, writer = staged_in(app, NAMES[3])
    four.configure(partitions=1)
    for _ in range(5):
        tend(monitor)
    assert layout_of(app).every("orders") == NAMES
    app.store.run(commit(job, [writer.part]))
    assert app.store.run(roll_forward(job)) == 1
    with four.consumer() as consumer:
        (message,) = consumer.claim(wait=1)
        consumer.ack(message)
    for _ in range(5):
        tend(monitor)
    assert layout_of(app).every("orders") == ["orders"]


def test_a_job_for_a_partition_that_was_given_up_is_refused(app, four, monitor):
    four.configure(partitions=1)
    for _ in range(5):
        tend(monitor)
    job, writer = staged_in(app, NAMES[3])
    with pytest.raises(JobClosed, match=f"{NAMES[3]} is no partition of its queue any more"):
        app.store.run(commit(job, [writer.part]))
