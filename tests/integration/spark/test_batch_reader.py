"""spark.read.format("reliq"): looks, and takes nothing."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage

KEYS = QueueKeys("orders")


def read(spark, state="ready", **options):
    return spark.read.format("reliq").options(queue="orders", state=state, **options).load()


def kill_all(orders, count, reason="rejected") -> None:
    with orders.consumer() as consumer:
        for message in consumer.claim(count):
            consumer.dead(message, reason)


def test_ready_messages_with_all_their_columns(spark, orders):
    orders.send({"order": 1}, id="a", headers={"trace": "7"})
    (row,) = read(spark).collect()
    assert (row.id, bytes(row.value), row.headers, row.queue) == ("a", b'{"order":1}', {"trace": "7"}, "orders")
    assert (row.deliveries, row.failures, row.redelivered) == (0, 0, False)
    assert (row.reason, row.error_class, row.died_at, row.due_at, row.routing_key) == (None,) * 5
    age = datetime.now(UTC) - row.enqueued_at.astimezone(UTC)
    assert timedelta() <= age < timedelta(minutes=1)
    assert orders.stats().ready == 1


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_every_ready_message_is_read_once_however_it_is_sliced(spark, orders, partitions):
    orders.send_many([str(number) for number in range(2345)])
    df = read(spark, numPartitions=partitions)
    assert df.rdd.getNumPartitions() == partitions
    assert sorted(int(row.value) for row in df.select("value").collect()) == list(range(2345))


@pytest.mark.parametrize("partitions", [None, 1, 7])
def test_messages_of_every_priority_and_those_behind_others_of_their_key_are_ready_too(spark, orders, partitions):
    orders.send_many([NewMessage(f"{number}", priority=("low", "normal", "high")[number % 3]) for number in range(60)])
    orders.send_many([NewMessage(f"{number}", key=f"k{number % 3}") for number in range(60, 200)])
    cancelled = orders.send("cancelled")
    orders.cancel(cancelled)
    assert (orders.stats().ready, orders.stats().waiting) == (200, 137)
    df = read(spark, **({} if partitions is None else {"numPartitions": partitions}))
    assert sorted(int(row.value) for row in df.select("value").collect()) == list(range(200))


def test_large_bodies_are_read_where_they_are_stored(spark, orders):
    bodies = [bytes([number]) * (900_000 if number % 2 else 100) for number in range(60)]
    orders.send_many(bodies)
    assert sorted(bytes(row.value) for row in read(spark).collect()) == sorted(bodies)


def test_dead_letters_say_why_they_died(spark, orders):
    orders.send("x", id="a")
    kill_all(orders, 1, "no such customer")
    (row,) = read(spark, "dead").collect()
    assert (row.id, row.reason, row.failures) == ("a", "rejected", 1)
    assert (row.error_class, row.error) == ("Dead", "no such customer")
    assert abs(datetime.now(UTC) - row.died_at.astimezone(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_dead_letter_is_read_once_even_where_many_died_in_one_millisecond(spark, orders, app, partitions):
    orders.send_many([str(number) for number in range(3000)])
    elements = app.store.call(ops.command("LRANGE", KEYS.messages, 0, -1))
    for place, element in enumerate(elements):
        app.store.call(ops.command("ZADD", KEYS.dead, 5000 if place < 2500 else 5000 + place, element))
    found = read(spark, "dead", numPartitions=partitions).select("value").collect()
    assert sorted(int(row.value) for row in found) == list(range(3000))


def test_delayed_messages_have_a_due_time(spark, orders):
    orders.send("x", delay="1h")
    (row,) = read(spark, "delayed").collect()
    left = row.due_at.astimezone(UTC) - datetime.now(UTC)
    assert timedelta(minutes=59) < left <= timedelta(hours=1)


def test_an_empty_queue_has_no_rows(spark):
    assert [read(spark, state).count() for state in ("ready", "delayed", "dead")] == [0, 0, 0]


def test_what_does_not_decode_is_a_row_with_the_raw_bytes(spark, orders, app):
    app.store.call(ops.command("LPUSH", KEYS.messages, b"raw"))
    (row,) = read(spark).collect()
    assert (bytes(row.value), row.reason) == (b"raw", "decode")


def test_a_filter_is_that_of_its_own_query(spark, orders):
    """Spark uses a reader that takes filters, with those of one query, for the other queries of its DataFrame."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    orders.send_many([NewMessage("x", id=f"m{number}") for number in range(4)])
    every = read(spark)
    one, other = every.where("id = 'm1'"), every.where("id = 'm2'")
    assert sorted(row.id for row in one.union(other).collect()) == ["m1", "m2"]
    assert (one.count(), every.count(), every.where("id LIKE 'm%'").count()) == (1, 4, 4)


@pytest.mark.parametrize(
    "condition",
    ["reason = 'rejected'", "error_class IN ('Dead')", "failures >= 1", "died_at > '2020-01-01'", "deliveries < 1"],
)
def test_columns_can_be_compared(spark, orders, condition):
    orders.send_many(["1", "2"])
    kill_all(orders, 1)
    orders.send("x")
    plain = read(spark, "dead")
    assert [bytes(row.value) for row in plain.where(condition).collect()] == [b"1"]
    assert plain.where(f"NOT ({condition})").count() == 0


def test_dead_letters_are_mended_and_written_back_under_their_ids(spark, orders):
    orders.send_many([reliq.NewMessage({"amount": "1,50"}, id=f"m{number}") for number in range(5)])
    kill_all(orders, 5)
    letters = read(spark, "dead").where("reason = 'rejected'")
    mended = letters.withColumn("value", sql.regexp_replace(sql.col("value").cast("string"), ",", "."))
    mended.write.format("reliq").option("queue", "orders").mode("append").save()
    with orders.consumer() as consumer:
        messages = consumer.claim(10)
        assert {message.id: message.json() for message in messages} == {f"m{n}": {"amount": "1.50"} for n in range(5)}
        consumer.ack(*messages)
    assert orders.dead.purge(ids=[f"m{number}" for number in range(5)]) == 5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"state": "running"}, "it is ready, delayed or dead"), ({"numPartitions": "0"}, "option numPartitions")],
)
def test_wrong_options_are_named(spark, options, sentence):
    with pytest.raises(PySparkException, match=sentence):
        spark.read.format("reliq").options(**{"queue": "orders", **options}).load().collect()


def test_a_schema_of_ones_own_is_refused(spark):
    with pytest.raises(PySparkException, match="the columns are fixed"):
        spark.read.format("reliq").schema("id string").option("queue", "orders").load().collect()


def test_no_plan_and_no_error_shows_the_password(spark, url, capfd):
    url = url.replace("redis://", "redis://nobody:hunter2@")
    df = spark.read.format("reliq").option("url", url).option("queue", "orders").load()
    df.explain(extended=True)
    shown = capfd.readouterr().out + str(df._jdf.queryExecution().toString())
    for act in (
        df.collect,
        df.withColumn("value", sql.lit("x"))
        .select("value")
        .write.format("reliq")
        .options(url=url, queue="orders")
        .mode("append")
        .save,
    ):
        with pytest.raises(PySparkException, match="Redis refuses") as error:
            act()
        shown += str(error.value)
    shown += "".join(capfd.readouterr())
    assert "hunter2" not in shown
    assert "== Physical Plan ==" in shown
