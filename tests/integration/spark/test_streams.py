"""writeStream and readStream: each micro-batch once, whichever process dies between two of its steps."""

import json
import time

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StringType, StructField, StructType

from reliq import ops
from reliq.errors import InvalidSetting
from reliq.features.staging import ops as stage_ops
from reliq.features.staging.spark.stream_writer import ReliqStreamWriter
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.spark.options import Given
from reliq.transport.store import Store
from tests.support.turns import Monitor

KEYS = QueueKeys("orders")


@pytest.fixture
def folders(tmp_path):
    for name in ("in", "out", "checkpoint"):
        (tmp_path / name).mkdir()
    return tmp_path


def put(folder, name: str, numbers) -> None:
    """A file of rows, there all at once."""
    hidden = folder / f".{name}"
    hidden.write_text("".join(json.dumps({"order": number}) + "\n" for number in numbers))
    hidden.rename(folder / f"{name}.json")


def rows_of(spark, folder):
    rows = spark.readStream.schema("order int").option("maxFilesPerTrigger", 1).json(str(folder))
    return rows.selectExpr("to_json(struct(order)) AS value")


def run(writer, folders, **trigger):
    """Run a query until it has read everything that is there."""
    query = writer.option("checkpointLocation", str(folders / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def to_reliq(df, **options):
    return df.writeStream.format("reliq").options(queue="orders", **options)


def from_reliq(spark, **options):
    if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):
        pytest.skip("reading a queue as a stream needs PySpark 4.2, see test_versions.py")
    return spark.readStream.format("reliq").options(queue="orders", **options).load()


def orders_in(orders) -> list[int]:
    with orders.consumer() as consumer:
        messages = []
        while batch := consumer.claim(1000):
            messages += batch
            consumer.ack(*batch)
    return sorted(message.json()["order"] for message in messages)


def forget_commit(folders) -> None:
    """Let the query believe that its last micro-batch was not committed: it died after the sink had it."""
    log = folders / "checkpoint" / "commits"
    last = max((path for path in log.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()
    (log / f".{last.name}.crc").unlink(missing_ok=True)


def staged(app) -> list[bytes]:
    return app.store.call(ops.command("KEYS", "reliq:{orders}:staged:*"))


# --- the stream writer -----------------------------------------------------------------------------------------------


def test_every_micro_batch_is_written_once(spark, orders, app, folders):
    for number in range(3):
        put(folders / "in", f"f{number}", range(number * 10, number * 10 + 10))
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    assert orders_in(orders) == list(range(30))
    assert staged(app) == []


def test_a_micro_batch_without_a_row_does_not_end_the_query(spark, orders, app, folders):
    put(folders / "in", "f0", range(10))
    put(folders / "in", "f1", range(10, 20))
    late = rows_of(spark, folders / "in").where("get_json_object(value, '$.order') > 10")
    run(to_reliq(late), folders)
    assert orders_in(orders) == list(range(11, 20))


def test_a_micro_batch_that_is_replayed_adds_nothing(spark, orders, app, folders):
    put(folders / "in", "f0", range(10))
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    forget_commit(folders)
    put(folders / "in", "f1", range(10, 20))
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    assert orders_in(orders) == list(range(20))
    assert staged(app) == []


def test_an_output_mode_that_no_queue_has_is_refused_with_the_one_that_it_has(spark, orders, folders):
    counts = rows_of(spark, folders / "in").groupBy().count().selectExpr("cast(count AS string) AS value")
    put(folders / "in", "f0", range(10))
    with pytest.raises(
        StreamingQueryException, match=r"outputMode\(.append.\).* in foreachBatch.* reliq.spark.transaction"
    ):
        run(to_reliq(counts).outputMode("complete"), folders)


def test_a_continuous_trigger_whose_rows_spark_does_not_give_to_a_sink_is_refused(url):
    schema = StructType([StructField("value", StringType())])
    writer = ReliqStreamWriter(Given({"queue": "orders"}, url).for_writing(), schema, overwrite=False)
    with pytest.raises(InvalidSetting, match=r"trigger\(continuous=.*trigger\(processingTime="):
        writer.commit([None, None], 0)


def test_what_a_killed_micro_batch_had_staged_goes_with_the_next_commit_of_its_query(spark, orders, app, folders):
    put(folders / "in", "f0", range(10))
    query = run(to_reliq(rows_of(spark, folders / "in")), folders)
    dead = f"{query.id}.7.dead"
    app.store.call(stage_ops.stage(KEYS, dead, "dead", 3600, stage_ops.Staged(KEYS, "p"), 0, [b"x"]))
    put(folders / "in", "f1", range(10, 20))
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    assert staged(app) == []
    assert orders_in(orders) == list(range(20))


def test_a_failing_micro_batch_is_written_once_after_the_restart(spark, orders, app, folders):
    put(folders / "in", "f0", range(500))
    rows = rows_of(spark, folders / "in")
    broken = rows.withColumn("value", sql.when(sql.rand(3) < 0.01, sql.lit(None)).otherwise(sql.col("value")))
    with pytest.raises(StreamingQueryException, match="column `value` in row"):
        run(to_reliq(broken), folders)
    assert orders.stats().ready == 0
    run(to_reliq(rows), folders)
    assert orders_in(orders) == list(range(500))


def test_jobs_of_foreach_batch_that_are_named_after_their_query_are_written_once_for_each_checkpoint(
    spark, orders, folders
):
    def enqueue(df, batch):
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        df.write.format("reliq").options(queue="orders", job=f"{query}.{batch}").mode("append").save()

    put(folders / "in", "f0", range(10))
    writer = rows_of(spark, folders / "in").writeStream.foreachBatch(enqueue)
    run(writer, folders)
    forget_commit(folders)
    run(writer, folders)
    assert orders_in(orders) == list(range(10))
    (folders / "checkpoint").rename(folders / "lost")
    run(writer, folders)
    assert orders_in(orders) == list(range(10)), "a new checkpoint is a new query: its rows are not dropped"


def test_a_stream_takes_no_job_name(spark, folders):
    put(folders / "in", "f0", [1])
    with pytest.raises(StreamingQueryException, match="option job is for batch writes"):
        run(to_reliq(rows_of(spark, folders / "in"), job="x"), folders)


# --- the stream reader -----------------------------------------------------------------------------------------------


def to_files(df, folders):
    """A sink that keeps a file a micro-batch: written again, it replaces what was there."""

    def write(batch, number):
        rows = [[number, row.id, json.loads(row.value)["order"]] for row in batch.select("id", "value").collect()]
        (folders / "out" / f"{number}.json").write_text(json.dumps(rows))

    return df.writeStream.foreachBatch(write)


def written(folders) -> list[int]:
    return sorted(row[2] for path in (folders / "out").iterdir() for row in json.loads(path.read_text()))


def test_a_stream_reads_what_is_there_in_batches_and_acks_it(spark, orders, folders):
    orders.send_many([{"order": number} for number in range(250)])
    run(to_files(from_reliq(spark, maxMessagesPerBatch=100), folders), folders)
    assert written(folders) == list(range(250))
    assert [len(json.loads((folders / "out" / f"{n}.json").read_text())) for n in range(3)] == [100, 100, 50]
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.consumers, stats.counters["acked"]) == (0, 0, 0, 250)


def test_large_batches_are_read_by_several_tasks(spark, orders, folders):
    orders.send_many([{"order": number} for number in range(2500)])
    seen = []

    def count(batch, number):
        seen.append((batch.rdd.getNumPartitions(), batch.count()))

    run(from_reliq(spark, numPartitions=3).writeStream.foreachBatch(count), folders)
    assert seen == [(3, 2500)]


def test_a_batch_that_is_replayed_has_the_same_messages(spark, orders, folders):
    orders.send_many([{"order": number} for number in range(150)])
    died: list[int] = []

    def die_after_writing(batch, number):
        if number == 1 and not died:
            rows = [row.id for row in batch.select("id").collect()]
            died.extend(rows)
            raise RuntimeError("the driver dies here")
        rows = [[number, row.id, json.loads(row.value)["order"]] for row in batch.select("id", "value").collect()]
        (folders / "out" / f"{number}.json").write_text(json.dumps(rows))

    def query():
        return from_reliq(spark, maxMessagesPerBatch=100).writeStream.foreachBatch(die_after_writing)

    with pytest.raises(StreamingQueryException, match="the driver dies here"):
        run(query(), folders)
    orders.send({"order": 999})
    stats = orders.stats()
    assert (stats.processing, stats.ready) == (50, 1)
    run(query(), folders)
    replayed = [row[1] for row in json.loads((folders / "out" / "1.json").read_text())]
    assert replayed == died
    assert written(folders) == [*range(150), 999]
    assert orders.stats().processing == 0


def test_a_stream_that_ends_has_read_all_priorities_and_all_messages_of_each_key(spark, orders, folders):
    orders.send_many([NewMessage(f"{number}", priority=("low", "high")[number % 2]) for number in range(10)])
    orders.send_many([NewMessage(f"{number}", key=f"k{number % 3}") for number in range(10, 40)])
    stream = from_reliq(spark, maxMessagesPerBatch=20).select("value")
    out = str(folders / "out")
    query = run(stream.writeStream.format("parquet").option("path", out), folders)
    assert sorted(int(row.value) for row in spark.read.parquet(out).collect()) == list(range(40))
    backlogs = [json.loads(one.sources[0]["latestOffset"])["ready"] for one in query.recentProgress]
    assert backlogs[:2] == [40, 0]  # the first batch claims later


def test_the_monitor_leaves_a_stopped_stream_its_batch_until_the_lease_ends(spark, orders, folders, url, app):
    orders.send_many([{"order": number} for number in range(10)])

    def die(batch, number):
        raise RuntimeError("dies here")

    with pytest.raises(StreamingQueryException, match="dies here"):
        run(from_reliq(spark, lease="2h").writeStream.foreachBatch(die), folders)
    monitor = Monitor(Store(url))
    monitor.scan()
    assert orders.stats().processing == 10
    (consumer,) = app.store.call(ops.members(KEYS.consumers))
    app.store.call(ops.command("SET", KEYS.lease(consumer), 1))
    monitor.scan()
    assert (orders.stats().processing, orders.stats().ready) == (0, 10)
    run(to_files(from_reliq(spark, lease="2h"), folders), folders)
    assert written(folders) == list(range(10)), "the replayed batch is empty, its messages come again in the next"


def test_a_running_query_keeps_its_lease_however_long_a_batch_takes(spark, orders, folders, url):
    orders.send_many([{"order": number} for number in range(10)])
    beats = []

    def outlast(batch, number):
        monitor, until = Monitor(Store(url)), time.monotonic() + 3
        while time.monotonic() < until:
            monitor.scan()
            beats.append(orders.stats().processing)

    run(from_reliq(spark, lease="1s").writeStream.foreachBatch(outlast), folders)
    assert set(beats) == {10}
    assert orders.stats().counters["acked"] == 10


def test_from_queue_to_queue(spark, orders, app, folders):
    orders.send_many([{"order": number} for number in range(120)])
    df = from_reliq(spark, maxMessagesPerBatch=50)
    run(df.writeStream.format("reliq").option("queue", "copies"), folders)
    assert orders_in(app.queue("copies")) == list(range(120))
    assert orders.stats().processing == 0


def test_expired_and_undecodable_messages_go_to_the_dead_letters(spark, orders, app, folders):
    orders.send({"order": 1}, ttl=0.001)
    app.store.call(ops.command("LPUSH", KEYS.messages, b"raw"))
    orders.send({"order": 2})
    run(to_files(from_reliq(spark), folders), folders)
    assert written(folders) == [2]
    assert {letter.reason for letter in orders.dead.list()} == {"expired", "decode"}


def test_wrong_options_of_a_stream_are_named(spark, folders):
    with pytest.raises((StreamingQueryException, PySparkException), match="maxMessagesPerBatch"):
        run(from_reliq(spark, maxMessagesPerBatch="all").writeStream.format("noop"), folders)


# --- killed again and again ------------------------------------------------------------------------------------------


def kill_at_every_step(spark, orders, folders, batches, kills):
    """A query of many micro-batches, killed before, within and after the sink's write, and once more in between."""
    orders.send_many([{"order": number} for number in range(batches * 20)])
    left = {"kills": kills, "calls": 0}
    deaths: list[str] = []

    def write(batch, number):
        left["calls"] += 1
        rows = [[number, row.id, json.loads(row.value)["order"]] for row in batch.select("id", "value").collect()]
        dies = left["kills"] > 0 and left["calls"] % 3 == 0
        if dies and left["kills"] % 2:
            left["kills"] -= 1
            raise RuntimeError("before the write")
        (folders / "out" / f"{number}.json").write_text(json.dumps(rows))
        if dies:
            left["kills"] -= 1
            raise RuntimeError("after the write")

    for _ in range(kills + 1):
        try:
            run(from_reliq(spark, maxMessagesPerBatch=20).writeStream.foreachBatch(write), folders)
        except StreamingQueryException as error:
            deaths.append(str(error))
    assert len(deaths) == kills
    assert all("before the write" in death or "after the write" in death for death in deaths)
    assert written(folders) == list(range(batches * 20))
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.counters["acked"]) == (0, 0, batches * 20)


def test_a_stream_killed_three_times_loses_nothing_and_repeats_nothing(spark, orders, folders):
    kill_at_every_step(spark, orders, folders, batches=8, kills=3)


@pytest.mark.slow
def test_a_stream_of_fifty_batches_killed_ten_times(spark, orders, folders):
    kill_at_every_step(spark, orders, folders, batches=50, kills=10)
