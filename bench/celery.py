"""Celery on reliq beside Celery's Redis transport, in turns: throughput, Redis commands, redelivery after kill -9.

Both with late acks, no results, no events, and the defaults of Celery otherwise. The Redis transport has a visibility
timeout of 20 s here, as short as tasks allow; its default is an hour. Every run has a Redis of its own.

python bench/celery.py [tasks] [rounds] [round trip to Redis, ms]
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of this folder, where this file would be the module celery

import redis  # noqa: E402

from bench.distance import far  # noqa: E402
from reliq.embedded import EmbeddedRedis  # noqa: E402

SIDES = {"reliq": "reliq+", "Redis transport": ""}
POOLS = {"prefork": ("-P", "prefork", "-c", "2"), "solo": ("-P", "solo"), "threads": ("-P", "threads", "-c", "16")}
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
LEAD = 200  #: tasks before the clock is started


@contextmanager
def worker(broker: str, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process group of its own."""
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bench.celery_app", "worker", "-n", name, *QUIET, *arguments],
            env=environment(broker), cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            yield running
        finally:
            running.terminate()
            with suppress(subprocess.TimeoutExpired):
                running.wait(timeout=15)
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def environment(broker: str) -> dict[str, str]:
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "api", "monitor"))
    return {**os.environ, "PYTHONPATH": paths, "BENCH_BROKER": broker}


def send(broker: str, code: str) -> None:
    """Send tasks from a process that has this broker."""
    start = "from bench.celery_app import app, noop, mark\nwith app.producer_pool.acquire(block=True) as p:\n    "
    subprocess.run([sys.executable, "-c", start + code], env=environment(broker), cwd=ROOT, check=True)


def left(client: "redis.Redis", side: str) -> int:
    """Return how many tasks are not acked."""
    if side == "reliq":
        enqueued, acked = client.hmget("reliq:{celery}:counters", "enqueued", "acked")
        return client.llen("reliq:{celery}:messages") if enqueued is None else int(enqueued) - int(acked or 0)
    return client.llen("celery") + client.hlen("unacked")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a task costs from its sending to its ack."""

    rate: float  #: tasks a second of one worker
    carried_out: float  #: commands in Redis, those inside of scripts included
    server_time: float  #: microseconds of the CPU that Redis used


def spent(client: "redis.Redis") -> tuple[int, float]:
    """Return the commands that Redis has carried out, and the seconds of CPU that it has used."""
    cpu = client.info("cpu")
    calls = sum(one["calls"] for one in client.info("commandstats").values())
    return calls, cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def cost(side: str, pool: str, tasks: int, round_trip: float) -> Cost:
    """Measure one worker; only its Redis is distant."""
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client, far(server.url, round_trip) as url:
        looks, (calls_before, cpu_before) = 0, spent(client)
        send(SIDES[side] + server.url, f"[noop.apply_async(producer=p) for _ in range({tasks})]")
        with worker(SIDES[side] + url, "one@bench", *POOLS[pool]):
            while left(client, side) > tasks - LEAD:
                time.sleep(0.01)
                looks += 1
            begun, done = time.perf_counter(), tasks - left(client, side)
            while left(client, side):
                time.sleep(0.01)
                looks += 1
            took, (calls, cpu) = time.perf_counter() - begun, spent(client)
        calls -= calls_before + looks * (1 if side == "reliq" else 2)
        return Cost((tasks - done) / took, calls / tasks, 1e6 * (cpu - cpu_before) / tasks)


def sending(side: str, tasks: int) -> tuple[float, float]:
    """Return what a task costs Redis to be sent: commands carried out, and microseconds of CPU."""
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client:
        send(SIDES[side] + server.url, "noop.apply_async(producer=p)")  # the server has the scripts
        calls_before, cpu_before = spent(client)
        send(SIDES[side] + server.url, f"[noop.apply_async(producer=p) for _ in range({tasks})]")
        calls, cpu = spent(client)
        return (calls - calls_before) / tasks, 1e6 * (cpu - cpu_before) / tasks


def sent_commands(side: str, pool: str, tasks: int = 500) -> float:
    """Return how many commands producer and worker send for a task; the server lists them, which slows it down."""
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client, client.monitor() as seen:
        broker, sent, over = SIDES[side] + server.url, 0, threading.Event()

        def count() -> None:
            nonlocal sent
            for one in seen.listen():
                if one["command"].startswith("ECHO over"):
                    break
                sent += one["client_type"] != "lua"
            over.set()

        threading.Thread(target=count, daemon=True).start()
        send(broker, f"[noop.apply_async(producer=p) for _ in range({tasks})]")
        with worker(broker, "one@bench", *POOLS[pool]):
            looks = 1
            while left(client, side):
                time.sleep(0.05)
                looks += 1
        client.echo("over")
        over.wait(timeout=30)
        return (sent - looks * (1 if side == "reliq" else 2)) / tasks


def redelivery(side: str) -> float:
    """Return the seconds from kill -9 of a worker to the second run of its task by another."""
    with EmbeddedRedis() as server, redis.Redis(port=server.port) as client:
        broker = SIDES[side] + server.url
        with worker(broker, "one@bench", "-P", "prefork", "-c", "1") as one:
            send(broker, "mark.apply_async(('runs', 60), producer=p)")
            wait(client, 1)
            with worker(broker, "two@bench", "-P", "prefork", "-c", "1"):
                time.sleep(6)  # the second worker is ready, and its monitor has looked around
                one.kill()
                begun = time.perf_counter()
                wait(client, 2)
                return time.perf_counter() - begun


def wait(client: "redis.Redis", runs: int) -> None:
    while int(client.get("runs") or 0) < runs:
        time.sleep(0.01)


def main() -> None:
    tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    milliseconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    distance = f"a round trip of {milliseconds:g} ms more"
    print(f"{tasks} no-op tasks, median of {rounds} rounds, {distance}; a task from its sending to its ack\n")
    print(f"{'':8} {'':16} {'tasks/s':>8} {'commands sent':>14} {'carried out':>12} {'Redis CPU':>10}")
    for pool in POOLS:
        found: dict[str, list[Cost]] = {side: [] for side in SIDES}
        for _ in range(rounds):
            for side in SIDES:
                found[side].append(cost(side, pool, tasks, milliseconds / 1000))
        rows = []
        for side, costs in found.items():
            medians = [statistics.median(getattr(one, name) for one in costs) for name in Cost.__slots__]
            row = (medians[0], sent_commands(side, pool), *medians[1:])
            print(f"{pool:8} {side:16} {row[0]:8,.0f} {row[1]:14.2f} {row[2]:12.2f} {row[3]:7.0f} us")
            rows.append(row)
        ratios = [ours / theirs for ours, theirs in zip(*rows, strict=True)]
        print(
            f"{pool:8} {'ratio':16} {ratios[0]:8.2f} {ratios[1]:14.2f} {ratios[2]:12.2f} {ratios[3]:10.2f}\n",
            flush=True,
        )
    for side in SIDES:
        sent = [sending(side, tasks) for _ in range(rounds)]
        calls, micros = (statistics.median(one) for one in zip(*sent, strict=True))
        print(
            f"a send               {side:16} {calls:9.2f} commands carried out, {micros:.1f} us of Redis CPU",
            flush=True,
        )
    for side in SIDES:
        print(f"again after kill -9   {side:16} {redelivery(side):9.2f} s", flush=True)


if __name__ == "__main__":
    main()
