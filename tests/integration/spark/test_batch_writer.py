"""df.write.format("reliq"), on a real Spark session."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.spark import register

KEYS = QueueKeys("orders")


def write(df, queue="orders", **options):
    df.write.format("reliq").options(queue=queue, **options).mode("append").save()


def claimed(orders) -> list[reliq.Message]:
    with orders.consumer() as consumer:
        messages = []
        while batch := consumer.claim(1000):
            messages += batch
            consumer.ack(*batch)
    return messages


def keys_left(app) -> set[str]:
    """What the queue has in Redis besides its messages."""
    found = {key.decode().removeprefix("reliq:{orders}:") for key in app.store.call(ops.command("KEYS", "*orders*"))}
    return {name for name in found if name.startswith(("staged", "parts", "jobs"))}


def numbers(spark, count, partitions=2):
    return spark.range(0, count, 1, partitions).selectExpr("to_json(struct(id AS order)) AS value")


def test_every_row_becomes_a_message_once(spark, orders, app):
    write(numbers(spark, 2500))
    messages = claimed(orders)
    assert sorted(message.json()["order"] for message in messages) == list(range(2500))
    assert len({message.id for message in messages}) == 2500
    assert orders.stats().counters["enqueued"] == 2500
    assert keys_left(app) == set()


def test_the_url_may_come_from_the_session(session, orders, url):
    session.conf.set("spark.reliq.secret.url", url)
    try:
        register(session)
    finally:
        session.conf.unset("spark.reliq.secret.url")
    write(numbers(session, 5))
    assert orders.stats().ready == 5


def test_all_columns(spark, orders):
    rows = [("a", b"\x00\xff", "eu", {"trace": "1"}, 0), ("b", b"later", None, None, 3_600_000)]
    df = spark.createDataFrame(rows, "id string, value binary, key string, headers map<string,string>, delay_ms long")
    write(df)
    (message,) = claimed(orders)
    assert (message.id, message.body, message.headers) == ("a", b"\x00\xff", {"trace": "1", "key": "eu"})
    assert message.key == "eu"
    assert orders.stats().delayed == 1
    assert orders.cancel("b")


def test_headers_as_kafka_has_them(spark, orders):
    df = spark.sql("SELECT 'x' AS value, array(named_struct('key', 'trace', 'value', cast('7' AS binary))) AS headers")
    write(df)
    assert claimed(orders)[0].headers == {"trace": "7"}


def test_ids_follow_from_job_partition_and_row(spark, orders):
    write(numbers(spark, 4), job="load-1")
    assert {message.id for message in claimed(orders)} == {"load-1-0-0", "load-1-0-1", "load-1-1-0", "load-1-1-1"}


def test_a_job_with_the_longest_name_writes_messages_that_can_be_read(spark, orders):
    write(numbers(spark, 20, partitions=2), job="j" * 128)
    ids = [message.id for message in claimed(orders)]
    assert len(set(ids)) == 20
    assert orders.stats().dead == 0


def test_a_named_job_is_written_once(spark, orders):
    write(numbers(spark, 10), job="load-1")
    write(numbers(spark, 10), job="load-1")
    assert orders.stats().ready == 10
    write(numbers(spark, 10), job="load-2")
    assert orders.stats().ready == 20


def test_an_empty_dataframe_writes_nothing(spark, orders, app):
    write(numbers(spark, 0))
    assert orders.stats().ready == 0
    assert keys_left(app) == set()


@pytest.mark.parametrize(
    ("select", "sentence"),
    [
        ("timestamp'2026-11-21' AS value", r"column `value` is timestamp, .* cast\(value AS string\)"),
        ("'x' AS value; id AS colour", r"column `colour` is not one of value, id, key.*whole row the body"),
        ("'x' AS value; array(id) AS id", r"column `id` is array<bigint>; .*: cast\(`id` AS string\)"),
        ("id; 3 AS priority", r"column `priority` is int; it must be string: high, .*option..columns., .id.."),
        ("interval 1 day AS waits", r"column `waits` is interval day, .*: cast\(`waits` AS string\)"),
        ("'x' AS value; 'soon' AS delay_ms", "column `delay_ms` is string"),
        ("'x' AS value; map('a', 1) AS headers", "column `headers` is map<string,int>"),
        ("'x' AS value; 'order.created' AS topic", "column `topic` routes the rows to queues, option queue names one"),
    ],
)
def test_a_wrong_schema_is_refused_on_the_driver_by_column(spark, orders, app, select, sentence):
    with pytest.raises(PySparkException, match=sentence):
        write(spark.range(1).selectExpr(*select.split("; ")))
    assert app.queues() == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "}x"}, "queue name '}x'"),
        ({"queue": ""}, "queue name ''"),
        ({"job": "a b"}, "job name 'a b'"),
        ({"que": "x"}, "did you mean queue"),
        (
            {"delay": "5s"},
            r"delay is no option but a column, `delay_ms` \(a whole number of milliseconds\): .withColumn",
        ),
        ({"ttl": "5s"}, "ttl is no option but a column, `ttl_ms`"),
        ({"priority": "high"}, r"a column, `priority` \(string: high, normal or low\): .withColumn..priority., lit"),
        ({"dedupKey": "a"}, "dedupkey is no option but a column, `dedup_key`"),
        ({"path": "orders"}, r"takes no path: name the queue, .option\(.queue., .orders.\)"),
        ({"maxBody": "many"}, "option maxBody is 'many'"),
        ({"maxBody": "65MiB"}, "option maxBody is '65MiB': it must be from 1 byte to 64 MiB"),
        ({"timeLimit": "1s"}, "option timeLimit"),
        ({"body": "json"}, "option body is 'json': it is value or row"),
        ({"columns": "colour"}, "option columns names 'colour': it lists some of id, key"),
        ({"columns": "key"}, "option columns names `key`; the columns are value"),
        ({"invalid": "drop"}, "option invalid is 'drop': it is fail, skip or dead"),
        ({"keyAs": "both"}, "option keyAs is 'both': it is order or header"),
        ({"url": "redis://127.0.0.1:1/0"}, "127.0.0.1:1.* cannot be reached"),
    ],
)
def test_wrong_options_and_a_redis_that_is_away_fail_before_the_first_task(spark, app, options, sentence):
    with pytest.raises(PySparkException, match=sentence):
        write(numbers(spark, 1), **options)
    assert app.queues() == []


def test_overwrite_is_refused(spark, orders):
    orders.send("before")
    with pytest.raises(PySparkException, match="use append"):
        numbers(spark, 1).write.format("reliq").option("queue", "orders").mode("overwrite").save()
    assert orders.stats().ready == 1


@pytest.mark.parametrize(
    ("value", "extra", "sentence"),
    [
        ("if(id = 700, NULL, 'x')", {}, "column `value` in row 200 of partition 1: is null"),
        (
            "if(id = 700, repeat('x', 2000), 'x')",
            {"maxBody": "1000"},
            "row 200 of partition 1: the body has 2,000 bytes, the limit is 1,000 ",
        ),
    ],
)
def test_a_bad_row_aborts_the_job_and_leaves_nothing(spark, orders, app, value, extra, sentence):
    df = spark.range(0, 1000, 1, 2).selectExpr(f"{value} AS value")
    with pytest.raises(PySparkException, match=sentence) as error:
        write(df, **extra)
    assert "xxxxx" not in str(error.value)
    first_line = str(error.value).partition("\n")[0]
    assert "row 200 of partition 1" in first_line
    assert 'or choose option("invalid", "skip")' in first_line
    assert orders.stats().ready == 0
    assert keys_left(app) == set()


def test_a_bad_id_names_its_row(spark):
    with pytest.raises(PySparkException, match="column `id` in row 3 of partition 0"):
        write(spark.range(0, 5, 1, 1).selectExpr("'x' AS value", "if(id = 3, 'two words', 'ok') AS id"))


def test_tasks_that_fail_and_are_retried_write_once(spark, orders, app, tmp_path):
    def fail_at_first(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        for number, batch in enumerate(batches):
            yield batch
            if number and not task.attemptNumber():
                raise RuntimeError("this attempt dies after it has staged something")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        write(numbers(spark, 4000).mapInArrow(fail_at_first, "value string"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = sorted(message.json()["order"] for message in claimed(orders))
    assert found == list(range(4000))
    assert keys_left(app) == set()


def test_a_job_that_fails_for_good_leaves_nothing(spark, orders, app):
    df = numbers(spark, 4000).withColumn(
        "value", sql.when(sql.rand(1) < 0.001, sql.raise_error(sql.lit("no luck"))).otherwise(sql.col("value"))
    )
    with pytest.raises(PySparkException):
        write(df)
    assert orders.stats().ready == 0
    assert keys_left(app) == set()


def test_a_queue_at_its_max_length_takes_all_or_nothing(spark, orders, app):
    orders.configure(max_length=100)
    with pytest.raises(PySparkException, match="0 of at most 100 messages"):
        write(numbers(spark, 101))
    assert orders.stats().ready == 0
    assert keys_left(app) == set()
    write(numbers(spark, 100))
    assert orders.stats().ready == 100


def test_a_full_redis_refuses_the_job_whole(spark, orders, app):
    used = int(app.store.call(ops.command("INFO", "memory")).split(b"used_memory:")[1].split(b"\r")[0])
    app.store.call(ops.command("CONFIG", "SET", "maxmemory", used + 4_000_000))
    try:
        with pytest.raises(PySparkException, match="maxmemory"):
            write(spark.range(0, 100_000, 1, 2).selectExpr("repeat('x', 200) AS value"))
        assert orders.stats().ready == 0
        assert keys_left(app) == set()
    finally:
        app.store.call(ops.command("CONFIG", "SET", "maxmemory", 0))


def test_what_a_dead_driver_staged_under_the_same_name_is_not_committed(spark, orders, app):
    from reliq.features.staging import steps as staging
    from reliq.model.outgoing import NewMessage
    from reliq.ops.chunks import chunks_of

    dead = staging.Job(KEYS, "load-1")
    app.store.run(staging.open_job(dead))
    app.store.run(staging.PartWriter(dead, "orders", "0").add(chunks_of([NewMessage("stale").element(1)])))
    write(numbers(spark, 3), job="load-1")
    assert sorted(json.loads(message.body)["order"] for message in claimed(orders)) == [0, 1, 2]
    assert keys_left(app) == set()


@pytest.mark.parametrize("room", [0, 3_000_000])
def test_a_full_redis_is_told_with_the_job_and_what_to_do(spark, app, orders, room):
    used = int(app.store.call(ops.command("INFO", "memory")).decode().partition("used_memory:")[2].split()[0])
    try:
        app.store.call(ops.command("CONFIG", "SET", "maxmemory", used + room))
        with pytest.raises(
            PySparkException, match=r"job load for queue orders: Redis is at its maxmemory .*maxmemory, or"
        ):
            write(spark.range(6000).selectExpr("repeat(cast(id AS string), 1000) AS value"), job="load")
    finally:
        app.store.call(ops.command("CONFIG", "SET", "maxmemory", 0))
    assert orders.stats().ready == 0


def test_a_header_that_is_no_text_is_named_with_what_helps(spark, orders):
    pairs = (
        "array(named_struct('key', 'trace', 'value', x'31'), named_struct('key', 'sig', 'value', x'ff00')) AS headers"
    )
    df = spark.sql(f"SELECT 'x' AS value, {pairs}")
    with pytest.raises(PySparkException, match=r"header 'sig' is not UTF-8, .*: base64\(value\)"):
        write(df)
    write(df.withColumn("headers", sql.expr("transform(headers, h -> struct(h.key, base64(h.value) AS value))")))
    assert claimed(orders)[0].headers == {"trace": "MQ==", "sig": "/wA="}
