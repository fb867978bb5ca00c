"""What a write has done: of the latest one of a session, of all jobs as a DataFrame, on the page and as metrics."""

import pytest
from pyspark.errors import PySparkException

import reliq.spark
from reliq.errors import InvalidSetting
from reliq.features.staging.spark.results import WriteResult
from reliq.observability.prometheus import Exporter
from tests.integration.spark.test_batch_writer import claimed, numbers, write
from tests.integration.spark.test_routed_writer import routed
from tests.integration.spark.test_streams import folders, forget_commit, put, rows_of, run, to_reliq

__all__ = ["folders"]  # a fixture

ROWS = [("a", "1", "x"), ("b", "2", "x"), ("c", None, "y"), ("two words", "4", "z"), ("e", "5" * 3000, "w")]


def mixed(spark):
    """Five rows: two with one dedup key, two that cannot be sent, one with a large body."""
    return spark.createDataFrame(ROWS, "id string, value string, dedup_key string").coalesce(1)


def last_write(spark) -> WriteResult:
    result = reliq.spark.last_write(spark)
    assert result is not None
    return result


def test_each_row_is_told_by_its_fate(spark, orders):
    write(mixed(spark), invalid="skip", job="load")
    result = last_write(spark)
    fates = (result.rows, result.messages, result.skipped, result.dead, result.deduplicated, result.unroutable)
    assert fates == (5, 2, 2, 0, 1, 0)
    assert (result.job, result.committed_before, result.complete) == ("load", False, True)
    assert {message.id for message in claimed(orders)} == {"a", "e"}
    of_queue = result.queues["orders"]
    assert (of_queue["messages"], of_queue["deduplicated"]) == (2, 1)
    assert 3000 < result.bytes == of_queue["bytes"] < 4000
    write(mixed(spark), invalid="dead")
    result = last_write(spark)
    assert (result.messages, result.skipped, result.dead, result.deduplicated) == (0, 0, 2, 3)
    assert orders.stats().dead == 2


def test_each_queue_and_unroutable_rows_are_told(spark, app):
    app.subscribe("mail", "order.*")
    app.subscribe("audit", "order.created")
    rows = routed(spark, "topic", "if(id < 10, 'bill.paid', if(id < 30, 'order.created', 'order.sent'))")
    rows.write.format("reliq").option("job", "nightly").mode("append").save()
    result = last_write(spark)
    assert (result.rows, result.messages, result.unroutable) == (600, 610, 10)
    assert {queue: one["messages"] for queue, one in result.queues.items()} == {"audit": 20, "mail": 590}


def test_all_tasks_of_a_job_keep_to_its_rate(spark, orders):
    rows = spark.range(0, 3000, 1, 3).selectExpr("repeat('x', 1000) AS value")
    write(rows, maxBytesPerSecond="1MiB", job="backfill")
    result = last_write(spark)
    job = spark.read.format("reliq").options(queue="orders", jobs="true").load().first()
    assert result.messages == 3000
    assert (job.committed_at - job.opened_at).total_seconds() >= result.bytes / 2**20 > 2
    with pytest.raises(PySparkException, match="maxBytesPerSecond is '8 apples'"):
        write(rows, maxBytesPerSecond="8 apples")


def test_partitions_are_told_as_their_queue(spark, orders):
    orders.configure(partitions=3)
    write(numbers(spark, 900))
    assert {queue: one["messages"] for queue, one in last_write(spark).queues.items()} == {"orders": 900}


def test_what_was_committed_before_is_a_result_or_an_error(spark, orders):
    for how in ({"job": "load"}, {"txnAppId": "load", "txnVersion": 3}):
        write(numbers(spark, 4), ifCommitted="fail", **how)
        assert not last_write(spark).committed_before
        with pytest.raises(PySparkException, match="was committed before: nothing is written again; option"):
            write(numbers(spark, 4), ifCommitted="fail", **how)
        write(numbers(spark, 4), **how)
        result = last_write(spark)
        assert (result.committed_before, result.rows, result.messages) == (True, 0, 0)
    assert orders.stats().ready == 8


def test_jobs_are_a_dataframe(spark, orders, app):
    write(numbers(spark, 4), job="first")
    write(numbers(spark, 0), job="empty")
    routed(spark, "queue", "concat('q', id % 2)", 10).write.format("reliq").mode("append").options(
        job="wide", application="shop"
    ).save()
    jobs = spark.read.format("reliq").option("jobs", "true").load()
    rows = {row.job: row for row in jobs.collect()}
    assert {name: (row.queue, row.state, row.messages) for name, row in rows.items()} == {
        "first": ("orders", "done", 4), "empty": ("orders", "done", 0), "shop@wide": (None, "done", 10),
    }  # fmt: skip
    assert rows["shop@wide"].queues["q1"].messages == 5
    assert rows["first"].opened_at <= rows["first"].committed_at <= rows["first"].ended_at
    assert jobs.where("queue = 'orders' AND messages > 0").count() == 1
    one = spark.read.format("reliq").options(jobs="true", queue="orders").load()
    assert {row.job for row in one.collect()} == {"first", "empty"}
    with pytest.raises(PySparkException, match="no option 'state' here"):
        spark.read.format("reliq").options(jobs="true", state="dead").load().collect()


def test_a_stream_tells_its_micro_batches(spark, orders, folders):
    put(folders / "in", "f0", range(7))
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    assert last_write(spark).messages == 7
    forget_commit(folders)
    run(to_reliq(rows_of(spark, folders / "in")), folders)
    assert last_write(spark).committed_before


def test_metrics_have_the_latest_job_of_each_queue(spark, orders, app):
    write(numbers(spark, 9), job="first")
    write(numbers(spark, 4), job="second")
    text = Exporter(app.store).render()[0].decode()
    assert 'reliq_job_latest{queue="orders",what="messages"} 4.0' in text


def test_a_session_that_is_not_registered_has_no_result(spark):
    with pytest.raises(InvalidSetting, match="register"):
        reliq.spark.last_write(spark.newSession())
