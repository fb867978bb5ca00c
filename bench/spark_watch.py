"""What Redis and its other clients notice of a job of Spark: memory, longest commands, sends into another queue."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from statistics import median

import psutil

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.features.staging import steps as staging
from reliq.model.keys import QueueKeys
from reliq.ops.chunks import chunks_of
from reliq.transport.store import Store

Work = Callable[[], object]


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


def memory_of_a_job(server: EmbeddedRedis, write: Work, rows: int, size: int) -> None:
    """Watch Redis while a job is written: its memory, its longest command, and the sends into another queue."""
    app = reliq.Reliq(server.url)
    before = send_times(app, 2.0)
    app.store.call(ops.command("CONFIG", "SET", "slowlog-log-slower-than", 100))
    app.store.call(ops.command("SLOWLOG", "RESET"))
    base, seen, over = used_memory(app), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen.append(used_memory(app))

    watcher = threading.Thread(target=look)
    watcher.start()
    during = sends_during(server, write)
    over.set()
    watcher.join()
    needed, slow = used_memory(app) - base, app.store.call(ops.command("SLOWLOG", "GET", 1000))
    longest, what = max(((entry[2] / 1000, entry[3]) for entry in slow), default=(0.0, []))
    peak = (max(seen) - base) / needed
    print(f"{rows:,} rows of {size} bytes: Redis needs {needed / 1e6:,.0f} MB, meanwhile {peak:.2f} times as much")
    print(f"  longest command in Redis: {longest:.1f} ms, {b' '.join(what[:2])[:60].decode(errors='replace')}")
    print(f"  p99 of a send into another queue: {p99(before):.2f} ms before, {p99(during):.2f} ms meanwhile")
    app.store.call(ops.command("FLUSHALL"))


def to_visible(server: EmbeddedRedis, write: Work, rows: int, partitions: int) -> None:
    """Print how long rows take until all are visible, and the largest resident memory of Spark's JVM meanwhile."""
    app = reliq.Reliq(server.url)
    jvm = next(one for one in psutil.Process().children(recursive=True) if "java" in one.name())
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            seen.append(jvm.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    started = time.perf_counter()
    write()
    took = time.perf_counter() - started
    over.set()
    watcher.join()
    assert app.queue("sink").stats().ready == rows
    how = f"{took:.1f} s to visible, {rows / took:,.0f} rows/s; at most {max(seen) / 1e6:,.0f} MB resident in the JVM"
    print(f"{rows:,} rows in {partitions} partitions: {how}", flush=True)
    app.store.call(ops.command("FLUSHALL"))


def backfill(server: EmbeddedRedis, ways: Mapping[str, Work], rounds: int) -> None:
    """Compare the sends into another queue while each of these is done."""
    app = reliq.Reliq(server.url)
    found: dict[str, list[float]] = {way: [] for way in ways}
    for way, work in [*ways.items()] * rounds:
        found[way].append(p99(sends_during(server, work)))
        app.store.call(ops.command("FLUSHALL"))
    for way, times in found.items():
        print(f"p99 of a send into another queue, {way}: {median(times):.2f} ms ({min(times):.2f} to {max(times):.2f})")


def sends_during(server: EmbeddedRedis, work: Work) -> list[float]:
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
