"""What the Spark sink and source do, side by side with the usual way, in one run on one machine.

    python bench/spark.py [--rows 1000000]

The usual way is foreachPartition with a redis-py pipeline of 1,000 LPUSHes. Both write the same cached rows of 200
bytes of JSON from local[2] to a Redis on the same machine. The first round of each warms up and does not count.
"""

import argparse
import os
import sys
import threading
import time
from statistics import median

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

from pyspark.sql import DataFrame, SparkSession

import reliq
from reliq import ops, staging
from reliq.chunks import chunks_of
from reliq.embedded import EmbeddedRedis
from reliq.keys import QueueKeys
from reliq.spark import register
from reliq.store import Store

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


def sink(df: DataFrame, queue: str) -> None:
    df.write.format("reliq").option("queue", queue).mode("append").save()


def timed(work, *arguments) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def rates(rows: int, rounds: int, work) -> float:
    """Rows a second, the median of the rounds after the first."""
    return rows / median([timed(work, number) for number in range(rounds + 1)][1:])


def commit_of_many(url: str, rows: int) -> None:
    """Stage `rows` without Spark, commit, and watch Redis and the first worker meanwhile."""
    store, keys = Store(url), QueueKeys("commit")
    job = staging.Job(keys)
    writer = staging.PartWriter(job, "commit", "0")
    for start in range(0, rows, 10_000):
        batch = [reliq.NewMessage(b"x" * 200, id=f"{start + n}").element(1) for n in range(10_000)]
        store.run(writer.add(chunks_of(batch)))
    store.call(ops.command("SLOWLOG", "RESET"))
    store.call(ops.command("CONFIG", "SET", "slowlog-log-slower-than", 1000))
    first: list[float] = []
    started = time.perf_counter()

    def first_worker() -> None:
        with reliq.Reliq(url).queue("commit").consumer() as consumer:
            consumer.claim(1, wait=30)
            first.append(time.perf_counter() - started)

    worker = threading.Thread(target=first_worker)
    worker.start()
    store.run(staging.commit(job, [writer.part]))
    store.run(staging.roll_forward(job))
    whole = time.perf_counter() - started
    worker.join()
    slow = store.call(ops.command("SLOWLOG", "GET", 1000))
    longest = max((entry[2] for entry in slow), default=0) / 1000
    print(f"commit of {rows:,} staged rows: first worker after {first[0] * 1000:.0f} ms, all after {whole:.2f} s")
    print(f"  longest single command in Redis (SLOWLOG): {longest:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows, rounds = options.rows, options.rounds
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "2g").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    with EmbeddedRedis(settings=["--appendonly", "no"]) as server:
        register(spark, server.url)
        app = reliq.Reliq(server.url)
        df = spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "to_json(struct(id AS order, repeat('x', 170) AS note)) AS value"
        )
        df = df.cache()
        print(f"{df.count():,} rows of {len(df.first().value)} bytes, {PARTITIONS} partitions, local[2]")

        def round_of_sink(number: int) -> None:
            sink(df, f"sink{number}")

        def round_of_usual(number: int) -> None:
            usual_way(df, server.port)

        def empty() -> None:
            app.store.call(ops.command("FLUSHALL"))

        sunk: list[float] = []
        usual: list[float] = []
        for number in range(rounds + 1):
            sunk.append(timed(round_of_sink, number))
            assert app.queue(f"sink{number}").stats().ready == rows
            if number == rounds:
                break
            empty()
            usual.append(timed(round_of_usual, number))
            empty()
        write, plain = rows / median(sunk[1:]), rows / median(usual)
        print(f"write:        {write:>10,.0f} rows/s  ({', '.join(f'{rows / one:,.0f}' for one in sunk[1:])})")
        print(f"usual way:    {plain:>10,.0f} rows/s  ({', '.join(f'{rows / one:,.0f}' for one in usual)})")
        print(f"ratio:        {write / plain:>10.1f}")

        def read(number: int) -> None:
            df = spark.read.format("reliq").option("queue", f"sink{rounds}").load()
            df.write.format("noop").mode("overwrite").save()

        print(f"read ready:   {rates(rows, rounds, read):>10,.0f} rows/s")
        empty()
        commit_of_many(server.url, rows)
    spark.stop()


if __name__ == "__main__":
    main()
