"""option onHandled: one message follows when every row of a job has been handled."""

import pytest
from pyspark.errors import PySparkException

from reliq import ops
from reliq.features.batches import ops as batch_ops
from reliq.model.keys import BATCHES
from tests.support.turns import Monitor


def write(df, queue="orders", **options):
    df.write.format("reliq").options(queue=queue, **options).mode("append").save()


def handle(queue, limit=1000):
    with queue.consumer() as consumer:
        messages = consumer.claim(limit)
        consumer.ack(*messages)
        return messages


def rows(spark, count, *columns, partitions=2):
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS value", *columns)


@pytest.fixture
def monitor(app):
    return Monitor(app.store)


def test_one_message_follows_the_last_row(spark, app, orders, monitor):
    write(rows(spark, 700), on_handled="reports", job="load")
    assert monitor.end_batches() == 0
    assert len(handle(orders, 699)) == 699
    assert monitor.end_batches() == 0
    handle(orders)
    assert monitor.end_batches() == 1
    (report,) = handle(app.queue("reports"))
    assert report.json() == {"job": "load"}
    assert report.headers["batch-handled"] == "700"
    write(rows(spark, 700), on_handled="reports", job="load")  # it was committed before
    assert (orders.stats().ready, app.store.call(ops.zset_size(BATCHES))) == (0, 0)


def test_rows_with_keys_priorities_and_large_bodies_count(spark, app, orders, monitor):
    columns = ["CAST(id % 3 AS STRING) AS key", "IF(id % 2 = 0, 'high', 'low') AS priority"]
    large = spark.range(0, 30).selectExpr("repeat('x', 5000) AS value", *columns)
    write(large, onHandled="reports", keyAs="order")
    (batch,) = app.batches()
    assert (batch.sent, batch.open, batch.state) == (30, 30, "closed")
    while handle(orders):
        pass
    assert monitor.end_batches() == 1
    assert handle(app.queue("reports"))[0].headers["batch-handled"] == "30"


def test_a_job_with_nothing_new_is_told_and_its_duplicates_are_no_members(spark, app, orders, monitor):
    def told():
        assert monitor.end_batches() == 1
        return [(report.json()["job"], report.headers["batch-handled"]) for report in handle(app.queue("reports"))]

    write(rows(spark, 3, "'same' AS dedup_key"), onHandled="reports", job="first")
    assert len(handle(orders)) == 1
    assert told() == [("first", "1")]
    write(rows(spark, 3, "'same' AS dedup_key"), onHandled="reports", job="again")
    assert told() == [("again", "0")]
    write(rows(spark, 0), onHandled="reports", job="none")
    assert told() == [("none", "0")]
    invalid = spark.range(0, 4, 1, 2).selectExpr("CAST(NULL AS STRING) AS value")
    write(invalid, onHandled="reports", job="invalid", invalid="skip")
    assert told() == [("invalid", "0")]
    assert app.batches() == []


def test_a_job_that_fails_tells_nothing(spark, app, orders, monitor):
    broken = rows(spark, 10, "IF(id = 7, repeat('k', 600), 'k') AS key")
    with pytest.raises(PySparkException, match="column `key`"):
        write(broken, onHandled="reports", keyAs="order")
    monitor.end_batches()
    assert app.batches() == []
    assert app.queue("reports").stats().ready == 0


def test_a_batch_waits_until_its_job_is_visible(spark, app, orders, monitor):
    """The monitor does not take a job that is still rolled forward for a batch without messages."""
    write(rows(spark, 5), onHandled="reports")
    (batch,) = app.batches()
    place, name, run = app.store.call(batch_ops.batch_fields(batch.id))["job"].decode().split(" ")
    handle(orders)
    app.store.call(
        ops.command("HSET", f"reliq:{{{place}}}:job:{name}", "state", "committed", "run", run)
    )  # as before its last part has moved
    assert monitor.end_batches() == 0
    app.store.call(ops.command("DEL", f"reliq:{{{place}}}:job:{name}"))
    assert monitor.end_batches() == 1


def test_a_stream_has_no_last_row(spark, orders, tmp_path):
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    query = stream.writeStream.format("reliq").option("queue", "orders").option("onHandled", "reports")
    with pytest.raises(PySparkException, match="a stream has no last row"):
        query.option("checkpointLocation", str(tmp_path)).start().awaitTermination(60)
