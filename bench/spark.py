"""Rates of the Spark sink and source beside the usual way, in one run on one machine.

    python -m bench.spark [--rows 2000000] [--rounds 3] [--real-time] [--only write 4KiB ...]

The usual way is foreachPartition with a redis-py pipeline of 1,000 LPUSHes; beside both stand sinks that do nothing,
one in Python and Spark's own. All write the same cached rows of 200 bytes, 4 KiB and 64 KiB of JSON from local[2], in
turns, to a Redis on the same machine. Two rounds of each warm up and do not count.
Beside the rate: microseconds of CPU a row, by who spends them.
"""

import argparse
import os
import sys
import time
from functools import partial

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import reliq
from bench.spark_contest import WARM_UPS, Contestant
from bench.spark_watch import backfill, commit_of_many, memory_of_a_job, redis_process, to_visible
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.spark import register
from reliq.transport.store import Store

PARTITIONS = 4


def usual_way(df: DataFrame, port: int) -> None:
    def push(rows) -> None:
        import redis

        pipeline = redis.Redis(port=port).pipeline(transaction=False)
        for number, row in enumerate(rows, 1):
            pipeline.lpush("usual", row.value)
            if number % 1000 == 0:
                pipeline.execute()
        pipeline.execute()

    df.foreachPartition(push)


def sink(df: DataFrame, queue: str, **options: str) -> None:
    df.write.format("reliq").options(queue=queue, **options).mode("append").save()


def write_in_turns(df: DataFrame, server: EmbeddedRedis, what: str, rows: int, rounds: int) -> None:
    app = reliq.Reliq(server.url)
    ours = Contestant(f"write {what}", rows, lambda: sink(df, "sink"))
    usual = Contestant(f"usual way {what}", rows, lambda: usual_way(df, server.port))
    python = Contestant("  Python noop", rows, lambda: df.write.format("python_noop").mode("append").save())
    jvm = Contestant("  Spark's noop", rows, lambda: df.write.format("noop").mode("overwrite").save())
    for _ in range(WARM_UPS + rounds):
        python.round()
        jvm.round()
        ours.round()
        assert app.queue("sink").stats().ready == rows
        app.store.call(ops.command("FLUSHALL"))
        usual.round()
        assert app.store.call(ops.command("LLEN", "usual")) == rows
        app.store.call(ops.command("FLUSHALL"))
    for one in (ours, usual, python, jvm):
        one.report()
    ours.compare(usual)


class NoopWriter(DataSourceArrowWriter):
    """Reads the rows and forgets them: what PySpark needs for a task, whatever the sink does."""

    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Noop(DataSource):
    @classmethod
    def name(cls) -> str:
        return "python_noop"

    def writer(self, schema, overwrite) -> NoopWriter:
        return NoopWriter()


def small_partitions(spark: SparkSession, server: EmbeddedRedis, partitions: int, rounds: int) -> None:
    """Partitions of 500 rows each, beside a Python sink that does nothing and Spark's own noop sink.

    The Python sink first has Python workers of its own. Then it has those in which reliq has run before, which do not
    collect garbage in their modules after each task.
    """
    rows = partitions * 500
    df = messages(spark, rows, partitions, 170)
    app = reliq.Reliq(server.url)
    ours = Contestant(f"{partitions:,} partitions", rows, lambda: sink(df, "sink"))
    alone, python = (
        Contestant(name, rows, lambda: df.write.format("python_noop").mode("append").save())
        for name in ("  Python noop", "  Python noop, after reliq")
    )
    jvm = Contestant("  Spark's noop", rows, lambda: df.write.format("noop").mode("overwrite").save())
    for _ in range(WARM_UPS + rounds):
        alone.round()
    for _ in range(WARM_UPS + rounds):
        ours.round()
        app.store.call(ops.command("FLUSHALL"))
        python.round()
        jvm.round()
    for one in (ours, alone, python, jvm):
        one.report()
    ours.compare(alone)
    ours.compare(python)


def few_or_many(spark: SparkSession, server: EmbeddedRedis, rounds: int) -> None:
    """The same 200,000 rows in 4 partitions, in 500 of 400 rows, and in these when they are coalesced.

    Beside each a Python sink that does nothing.
    """
    rows, app = 200_000, reliq.Reliq(server.url)

    def noop(df: DataFrame) -> None:
        df.write.format("python_noop").mode("append").save()

    few, many = (messages(spark, rows, partitions, 170).select("value").cache() for partitions in (4, 500))
    found = []
    for name, df in (("4 partitions", few), ("500 partitions", many), ("500, coalesced", many.coalesce(4))):
        df.count()
        ours = Contestant(name, rows, partial(sink, df, "sink"))
        found.append((ours, Contestant("  Python noop", rows, partial(noop, df))))
    for _ in range(WARM_UPS + rounds):
        for ours, nothing in found:
            ours.round()
            assert app.queue("sink").stats().ready == rows
            app.store.call(ops.command("FLUSHALL"))
            nothing.round()
    for ours, nothing in found:
        ours.report()
        nothing.report()
        ours.compare(nothing)
    for place, what in enumerate(("reliq", "Python noop")):
        for case in found[1:]:
            print(f"{what}: {case[0].name} beside 4 partitions")
            case[place].compare(found[0][place])


def many_queues(spark: SparkSession, server: EmbeddedRedis, rows: int, rounds: int) -> None:
    df = messages(spark, rows, PARTITIONS, 170).selectExpr("value", "concat('q', id % 200) AS queue").cache()
    one, app = df.select("value"), reliq.Reliq(server.url)
    several = Contestant("200 queues", rows, lambda: df.write.format("reliq").mode("append").save())
    single = Contestant("  one queue", rows, lambda: sink(one, "sink"))
    for _ in range(WARM_UPS + rounds):
        several.round()
        assert len(app.queues()) == 200
        app.store.call(ops.command("FLUSHALL"))
        single.round()
        app.store.call(ops.command("FLUSHALL"))
    several.report()
    single.report()
    several.compare(single)
    df.unpersist()


def read_ready(spark: SparkSession, df: DataFrame, rows: int, rounds: int) -> None:
    sink(df, "sink")
    source = spark.read.format("reliq").option("queue", "sink").load()
    reader = Contestant("read ready", rows, lambda: source.write.format("noop").mode("overwrite").save())
    for _ in range(WARM_UPS + rounds):
        reader.round()
    reader.report()


def messages(spark: SparkSession, rows: int, partitions: int, size: int) -> DataFrame:
    note = f"to_json(struct(id AS order, repeat('x', {size}) AS note)) AS value"
    return spark.range(0, rows, 1, partitions).selectExpr("id", note)


PARTS = ("write", "read", "4KiB", "64KiB", "small", "partitions", "queues", "memory", "commit", "backfill", "linear")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2_000, help="of 500 rows each")
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="Redis, and who sends meanwhile, wait for no other process: the p99 is of Redis alone (as root)",
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    rows, rounds = options.rows, options.rounds
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "3g").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    with EmbeddedRedis(settings=["--appendonly", "no"]) as server:
        if options.real_time:
            os.sched_setscheduler(redis_process().pid, os.SCHED_FIFO, os.sched_param(1))
        register(spark, server.url)
        spark.dataSource.register(Noop)
        sizes = {"write": (rows, 170), "4KiB": (rows // 20, 4070), "64KiB": (rows // 200, 65_510)}
        for part, (count, size) in sizes.items():
            if part not in options.only and not (part == "write" and "read" in options.only):
                continue
            df = messages(spark, count, PARTITIONS, size).select("value").cache()
            length = len(df.head(1)[0].value)
            print(f"{df.count():,} rows of {length:,} bytes, {PARTITIONS} partitions, local[2]")
            if part in options.only:
                write_in_turns(df, server, f"{length:,} B", count, rounds)
            if part == "write" and "read" in options.only:
                read_ready(spark, df, rows, rounds)
                Store(server.url).call(ops.command("FLUSHALL"))
            df.unpersist()
        if "small" in options.only:
            few_or_many(spark, server, rounds)
        if "partitions" in options.only:
            small_partitions(spark, server, options.partitions, rounds)
        if "queues" in options.only:
            many_queues(spark, server, rows // 4, rounds)
        if "memory" in options.only:
            for count, size in ((rows * 2, 170), (rows // 20, 4070), (rows // 200, 65_510)):
                job = partial(sink, messages(spark, count, PARTITIONS, size), "sink")
                memory_of_a_job(server, job, count, size)
        if "backfill" in options.only:
            job = partial(sink, messages(spark, rows // 80, PARTITIONS, 4070), "sink")
            limited = partial(job, maxBytesPerSecond="8MiB")
            ways = {"alone": partial(time.sleep, 10), "without a limit": job, "at 8 MiB/s": limited}
            backfill(server, ways, rounds)
        if "linear" in options.only:
            for count in (rows // 2, rows // 2, rows * 3 // 2, rows * 5):  # the first one warms up
                job = partial(sink, messages(spark, count, 8, 170).select("value"), "sink")
                to_visible(server, job, count, 8)
        if "commit" in options.only:
            commit_of_many(server.url, 1_000_000)
    spark.stop()


if __name__ == "__main__":
    main()
