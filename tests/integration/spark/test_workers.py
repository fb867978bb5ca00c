"""What many small tasks cost: the Python workers of Spark keep their connection, and collect no modules as garbage."""

import logging
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from reliq import ops
from reliq.features.staging.spark.writer import advise
from reliq.features.staging.spark.written import Staged
from reliq.spark import register

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc

    for _ in batches:
        yield pa.record_batch({"objects": [gc.get_freeze_count()]})


def connections(app) -> int:
    stats = app.store.call(ops.command("INFO", "stats")).decode()
    return int(stats.split("total_connections_received:")[1].split("\r")[0])


@pytest.mark.parametrize("named", [False, True])
def test_spark_on_this_machine_runs_the_python_of_the_program(spark, app, url, monkeypatch, named):
    """Its default is the `python3` of PATH, which has no reliq where an environment is used without being activated."""
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "/nowhere/python3")
    if named:
        monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python3")
    else:
        monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark, url)
    assert context.pythonExec == ("/nowhere/python3" if named else sys.executable)
    if not named:
        spark.range(3).write.format("reliq").option("queue", "orders").mode("append").save()
        assert app.queue("orders").stats().ready == 3


def test_tasks_share_the_connection_of_their_worker(spark, app):
    def write(partitions: int) -> int:
        before = connections(app)
        df = spark.range(0, partitions, 1, partitions).selectExpr("cast(id AS string) AS value")
        df.write.format("reliq").option("queue", "orders").mode("append").save()
        return connections(app) - before

    write(2)
    assert write(24) <= 12  # of the driver, and of a worker that Spark may start anew
    assert app.queue("orders").stats().ready == 26


def test_a_task_of_one_call_to_redis_is_one_round_trip(spark, app):
    """What a queue, a job and a script need once, they get once a worker: a small task is one transaction."""

    def calls() -> dict[str, int]:
        lines = app.store.call(ops.command("INFO", "commandstats")).decode().split()
        pairs = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_"))
        return {name: int(rest.partition(",")[0]) for name, rest in pairs}

    df = spark.range(0, 48, 1, 24).selectExpr("cast(id AS string) AS value")
    df.write.format("reliq").option("queue", "orders").mode("append").save()
    before = calls()
    df.write.format("reliq").option("queue", "orders").mode("append").save()
    after = calls()
    assert after["sismember"] - before["sismember"] <= 4  # the queue is announced by each worker
    assert after["rpush"] - before["rpush"] == 24
    assert after["script|load"] == before["script|load"]
    assert app.queue("orders").stats().ready == 96


def test_a_worker_that_has_written_leaves_its_modules_out_of_collections(spark):
    df = spark.range(0, 2, 1, 2)
    df.selectExpr("cast(id AS string) AS value").write.format("reliq").option("queue", "orders").mode("append").save()
    assert max(row.objects for row in df.mapInArrow(frozen, "objects long").collect()) > 10_000


def test_arrow_batches_are_limited_unless_the_session_has_a_limit(spark, url):
    assert spark.conf.get(BATCH_BYTES) == "4194304"
    try:
        spark.conf.set(BATCH_BYTES, "1000000")
        register(spark, url)
        assert spark.conf.get(BATCH_BYTES) == "1000000"
    finally:
        spark.conf.unset(BATCH_BYTES)


def rows_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows]})


def test_a_task_gets_large_rows_in_several_batches(spark, orders):
    large = spark.range(0, 100, 1, 1).selectExpr("repeat('x', 200000) AS value")
    assert max(row.rows for row in large.mapInArrow(rows_of, "rows long").collect()) < 50
    large.write.format("reliq").option("queue", "orders").mode("append").save()
    assert orders.stats().ready == 100


@pytest.mark.parametrize(("tasks", "rows", "advised"), [(500, 400, True), (500, 5000, False), (20, 400, False)])
def test_a_job_of_many_small_tasks_is_told_to_coalesce(caplog, tasks, rows, advised):
    with caplog.at_level(logging.WARNING, "reliq.spark"):
        advise([Staged("load", "run", rows=rows)] * tasks)
    assert ("load had 500 tasks of about 400 rows" in caplog.text) == advised
    assert ("df.coalesce(n) before the write" in caplog.text) == advised
