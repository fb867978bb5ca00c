"""Rates of the Spark sink and source beside the usual way, in one run on one machine.

    python bench/spark.py [--rows 2000000] [--rounds 3] [--real-time] [--only write 4KiB ...]

The usual way is foreachPartition with a redis-py pipeline of 1,000 LPUSHes; beside both stand sinks that do nothing,
one in Python and Spark's own. All write the same cached rows of 200 bytes, 4 KiB and 64 KiB of JSON from local[2], in
turns, to a Redis on the same machine. Two rounds of each warm up and do not count.
Beside the rate: microseconds of CPU a row, by who spends them.
"""

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from statistics import median

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.features.staging import steps as staging
from reliq.model.keys import QueueKeys
from reliq.ops.chunks import chunks_of
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


def sink(df: DataFrame, queue: str, **options: str) -> None:
    df.write.format("reliq").options(queue=queue, **options).mode("append").save()


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

    @property
    def cpu(self) -> float:
        """Microseconds of CPU a row of all processes, the median of the rounds after the warm-ups."""
        return median([sum(one.values()) for one in self._cpu[WARM_UPS:]]) / self._rows * 1e6

    def compare(self, other: "Contestant") -> None:
        """Print how many times as fast as the other one this is, round by round: both had the same machine."""
        pairs = zip(self._seconds[WARM_UPS:], other._seconds[WARM_UPS:], strict=True)
        ratio = median(theirs / ours for ours, theirs in pairs)
        print(f"  {ratio:.2f} times the rate (median of the rounds), for {self.cpu / other.cpu:.2f} times the CPU")

    def report(self) -> None:
        rounds = ", ".join(f"{self._rows / one:,.0f}" for one in self._seconds[WARM_UPS:])
        print(f"{self.name:22}{self.rate:>10,.0f} rows/s  ({rounds})")
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


def memory_of_a_job(spark: SparkSession, server: EmbeddedRedis, rows: int, size: int) -> None:
    """Watch Redis while a job is written: its memory, its longest command, and the sends into another queue."""
    df, app = messages(spark, rows, PARTITIONS, size), reliq.Reliq(server.url)
    before = send_times(app, 2.0)
    app.store.call(ops.command("CONFIG", "SET", "slowlog-log-slower-than", 100))
    app.store.call(ops.command("SLOWLOG", "RESET"))
    base, seen, over = used_memory(app), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen.append(used_memory(app))

    watcher = threading.Thread(target=look)
    watcher.start()
    during = sends_during(server, lambda: sink(df, "sink"))
    over.set()
    watcher.join()
    needed, slow = used_memory(app) - base, app.store.call(ops.command("SLOWLOG", "GET", 1000))
    longest, what = max(((entry[2] / 1000, entry[3]) for entry in slow), default=(0.0, []))
    peak = (max(seen) - base) / needed
    print(f"{rows:,} rows of {size} bytes: Redis needs {needed / 1e6:,.0f} MB, meanwhile {peak:.2f} times as much")
    print(f"  longest command in Redis: {longest:.1f} ms, {b' '.join(what[:2])[:60].decode(errors='replace')}")
    print(f"  p99 of a send into another queue: {p99(before):.2f} ms before, {p99(during):.2f} ms meanwhile")
    app.store.call(ops.command("FLUSHALL"))


def backfill(spark: SparkSession, server: EmbeddedRedis, rows: int, rounds: int) -> None:
    """Compare the sends into another queue without a job, and while one writes with and without a limit of its rate."""
    df, app = messages(spark, rows, PARTITIONS, 4070), reliq.Reliq(server.url)
    limited = partial(sink, df, "sink", maxBytesPerSecond="8MiB")
    ways = {"alone": partial(time.sleep, 10), "without a limit": partial(sink, df, "sink"), "at 8 MiB/s": limited}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for way, work in [*ways.items()] * rounds:
        found[way].append(p99(sends_during(server, work)))
        app.store.call(ops.command("FLUSHALL"))
    for way, times in found.items():
        print(f"p99 of a send into another queue, {way}: {median(times):.2f} ms ({min(times):.2f} to {max(times):.2f})")


def sends_during(server: EmbeddedRedis, work: Callable[[], object]) -> list[float]:
    """Return how long each send took while work was done."""
    found, over = list[float](), threading.Event()
    sender = threading.Thread(target=lambda: found.extend(send_times(reliq.Reliq(server.url), 1e9, over)))
    sender.start()
    work()
    over.set()
    sender.join()
    return found


def used_memory(app: reliq.Reliq) -> int:
    found = app.store.call(ops.command("INFO", "memory")).split(b"used_memory:")[1]
    return int(found.split(b"\r")[0])


def send_times(app: reliq.Reliq, seconds: float, over: threading.Event | None = None) -> list[float]:
    """Return how long each send into another queue took, in ms; the thread has the priority of Redis."""
    os.sched_setscheduler(0, *scheduling_of(redis_process().pid))
    found, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until and not (over and over.is_set()):
        started = time.perf_counter()
        app.queue("other").send(b"x")
        found.append((time.perf_counter() - started) * 1000)
        time.sleep(0.002)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return found


def scheduling_of(pid: int) -> tuple[int, os.sched_param]:
    return os.sched_getscheduler(pid), os.sched_getparam(pid)


def redis_process() -> psutil.Process:
    return next(one for one in psutil.Process().children(recursive=True) if "redis" in one.name())


def p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


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


PARTS = ("write", "read", "4KiB", "64KiB", "small", "partitions", "queues", "memory", "commit", "backfill")


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
            memory_of_a_job(spark, server, rows * 2, 170)
            memory_of_a_job(spark, server, rows // 20, 4070)
            memory_of_a_job(spark, server, rows // 200, 65_510)
        if "backfill" in options.only:
            backfill(spark, server, rows // 80, rounds)
        if "commit" in options.only:
            commit_of_many(server.url, 1_000_000)
    spark.stop()


if __name__ == "__main__":
    main()
