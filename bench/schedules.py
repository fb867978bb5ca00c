"""How late the ticks of 10,000 schedules are ready, and what the monitor costs meanwhile.

    PYTHONPATH=.:monitor:api python bench/schedules.py [--schedules 10000] [--rounds 6] [--only burst,cron]

A monitor in a process of its own, and a Redis of its own. `burst`: all are due at the same instant, every 10 s, in one
queue. `queues`: the same in 100 queues. `spread`: each is due every 10 s, at instants that are spread evenly. `cron`:
all are due at each full minute, with 500 different expressions; takes a minute a round. Late is the time of the Redis
server at which the message was pushed, less the time of the tick.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import psutil

import reliq
from bench.suite.harness import fresh_redis, percentile
from reliq.features.schedules import ops as schedule_ops
from reliq.features.schedules.model import Definition
from reliq.features.schedules.steps import ScheduleSteps
from reliq.model.keys import QueueKeys

_EVERY = 10  #: seconds
_QUEUES = 100
_PAGE = 1000

Define = Callable[..., Definition]


def burst(define: Define, count: int) -> Iterator[Definition]:
    for number in range(count):
        yield define(f"s-{number}", f"{_EVERY}s", "q", b"x" * 100, {})


def queues(define: Define, count: int) -> Iterator[Definition]:
    for number in range(count):
        yield define(f"s-{number}", f"{_EVERY}s", f"q-{number % _QUEUES}", b"x" * 100, {})


def spread(define: Define, count: int) -> Iterator[Definition]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        later = timedelta(milliseconds=number * _EVERY * 1000 // count)
        yield define(f"s-{number}", f"{_EVERY}s", "q", b"x" * 100, {"start": start + later})


def cron(define: Define, count: int) -> Iterator[Definition]:
    for number in range(count):
        expression = f"{number % 50},* {number // 50 % 10},* * * *"  # every minute, in 500 spellings
        yield define(f"s-{number}", expression, "q", b"x" * 100, {"tz": "Europe/Berlin"})


SHAPES = {"burst": (burst, _EVERY), "queues": (queues, _EVERY), "spread": (spread, _EVERY), "cron": (cron, 60)}


def late_in(app: reliq.Reliq, names: dict[str, list[str]], seen: dict[str, int]) -> list[float]:
    """Return how many seconds late each run was that was not seen before."""
    late: list[float] = []
    for queue, some in names.items():
        for start in range(0, len(some), _PAGE):
            page = some[start : start + _PAGE]
            for name, run in zip(page, app.store.call(schedule_ops.latest_runs(QueueKeys(queue), page)), strict=True):
                if run is not None and seen.get(name) != run.tick:
                    seen[name] = run.tick
                    late.append((run.at - run.due) / 1000)
    return late


def measure(shape: str, count: int, rounds: int) -> str:
    make, every = SHAPES[shape]
    with fresh_redis() as (server, _):
        app = reliq.Reliq(server.url)
        steps: ScheduleSteps = app.schedules._steps
        definitions = list(make(steps.define, count))
        app.store.run(steps.put(definitions))
        names: dict[str, list[str]] = {}
        for one in definitions:
            names.setdefault(one.queue, []).append(one.name)
        command = [sys.executable, "-m", "reliq", "monitor", "--quiet", "--url", server.url]
        monitor = subprocess.Popen(command, env=os.environ)
        try:
            time.sleep(every - time.time() % every + every / 2)  # the first round warms up
            seen: dict[str, int] = {}
            late_in(app, names, seen)
            cpu, began = psutil.Process(monitor.pid).cpu_times(), time.monotonic()
            late: list[float] = []
            for _ in range(rounds):
                time.sleep(every - (time.time() - every / 2) % every)  # in the middle between two bursts
                late += late_in(app, names, seen)
            now, took = psutil.Process(monitor.pid).cpu_times(), time.monotonic() - began
            counters = [app.queue(queue).stats().counters for queue in names]
            missed = sum(one.get("ticks_missed", 0) for one in counters)
        finally:
            monitor.kill()
            monitor.wait()
            app.close()
    share = (now.user + now.system - cpu.user - cpu.system) / took
    shown = ", ".join(f"{word} {1000 * value:.0f}" for word, value in _points(late))
    return f"{shape:7} {len(late):6} ticks: ms late {shown}; {missed} missed; monitor {share:.2f} of a core"


def _points(late: list[float]) -> list[tuple[str, float]]:
    return [("p50", percentile(late, 0.5)), ("p99", percentile(late, 0.99)), ("most", max(late))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="burst,queues,spread")
    options = parser.parse_args()
    for shape in options.only.split(","):
        print(measure(shape, options.schedules, options.rounds), flush=True)


if __name__ == "__main__":
    main()
