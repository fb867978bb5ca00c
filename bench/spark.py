"""Rates of the Spark sink and source beside the usual way, in one run on one machine.

    python bench/spark.py [--rows 2000000] [--rounds 3]

The usual way is foreachPartition with a redis-py pipeline of 1,000 LPUSHes. Both write the same cached rows of 200
bytes of JSON from local[2] to a Redis on the same machine, in turns. Two rounds of each warm up and do not count.
Beside the rate: microseconds of CPU a row, by who spends them.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

import psutil
from pyspark.sql import DataFrame, SparkSession

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq.ops.chunks import chunks_of
from reliq.protocol import staging
from reliq.spark import register
from reliq.transport.store import Store

WHO = ("Spark's JVM", "its Python", "Redis")  #: uses the CPU
PARTITIONS = 4
WARM_UPS = 2


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


class Contestant:
    """One way to do the work, with the times of its rounds."""

    def __init__(self, name: str, rows: int, work: Callable[[], object]) -> None:
        self.name, self._rows, self._work = name, rows, work
        self._seconds: list[float] = []
        self._cpu: list[dict[str, float]] = []

    def round(self) -> None:
        before, started = cpu_seconds(), time.perf_counter()
        self._work()
        self._seconds.append(time.perf_counter() - started)
        after = cpu_seconds()
        self._cpu.append({who: after[who] - before[who] for who in WHO})

    @property
    def rate(self) -> float:
        """Rows a second, the median of the rounds after the warm-ups."""
        return self._rows / median(self._seconds[WARM_UPS:])

    def report(self) -> None:
        rounds = ", ".join(f"{self._rows / one:,.0f}" for one in self._seconds[WARM_UPS:])
        print(f"{self.name:14}{self.rate:>10,.0f} rows/s  ({rounds})")
        for who in WHO:
            spent = median([cpu[who] for cpu in self._cpu[WARM_UPS:]])
            print(f"    {who:12}{spent / self._rows * 1e6:>8.2f} us of CPU a row")


def cpu_seconds() -> dict[str, float]:
    """What the processes below this one have used so far, with those that ended."""
    spent = dict.fromkeys(WHO, 0.0)
    for process in psutil.Process().children(recursive=True):
        name, times = process.name(), process.cpu_times()
        who = "Spark's JVM" if "java" in name else "Redis" if "redis" in name else "its Python"
        spent[who] += times.user + times.system
        if who == "its Python":
            spent[who] += times.children_user + times.children_system
    return spent


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


def write_in_turns(df: DataFrame, server: EmbeddedRedis, rows: int, rounds: int) -> None:
    app = reliq.Reliq(server.url)
    ours = Contestant("write", rows, lambda: sink(df, "sink"))
    usual = Contestant("usual way", rows, lambda: usual_way(df, server.port))
    for _ in range(WARM_UPS + rounds):
        ours.round()
        assert app.queue("sink").stats().ready == rows
        app.store.call(ops.command("FLUSHALL"))
        usual.round()
        assert app.store.call(ops.command("LLEN", "usual")) == rows
        app.store.call(ops.command("FLUSHALL"))
    ours.report()
    usual.report()
    print(f"ratio         {ours.rate / usual.rate:>10.1f}")


def read_ready(spark: SparkSession, df: DataFrame, rows: int, rounds: int) -> None:
    sink(df, "sink")
    source = spark.read.format("reliq").option("queue", "sink").load()
    reader = Contestant("read ready", rows, lambda: source.write.format("noop").mode("overwrite").save())
    for _ in range(WARM_UPS + rounds):
        reader.round()
    reader.report()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows, rounds = options.rows, options.rounds
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "3g").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    with EmbeddedRedis(settings=["--appendonly", "no"]) as server:
        register(spark, server.url)
        df = spark.range(0, rows, 1, PARTITIONS).selectExpr(
            "to_json(struct(id AS order, repeat('x', 170) AS note)) AS value"
        )
        df = df.cache()
        print(f"{df.count():,} rows of {len(df.head(1)[0].value)} bytes, {PARTITIONS} partitions, local[2]")
        write_in_turns(df, server, rows, rounds)
        read_ready(spark, df, rows, rounds)
        Store(server.url).call(ops.command("FLUSHALL"))
        commit_of_many(server.url, 1_000_000)
    spark.stop()


if __name__ == "__main__":
    main()
