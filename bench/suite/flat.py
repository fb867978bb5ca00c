"""Whether work gets slower as there is more of it: the same cycles on a small state and on a large one, in turns."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import redis

import reliq
from bench.suite.contestants import BENCH
from bench.suite.harness import Check, Row, Setting, fresh_redis, ratios
from reliq import ops
from reliq.model.keys import QueueKeys, new_owner

BODY = b"x" * 200
_BATCH = 100
_LEASE = 3600.0
_WATCHED = 10.0  #: seconds for which the monitor's CPU time is taken: each of its duties comes round

Build = Callable[[reliq.Reliq, int], None]


def backlog(app: reliq.Reliq, size: int) -> None:
    for start in range(0, size, 10_000):
        app.queue("bench").send_many([BODY] * min(10_000, size - start))


def in_flight(app: reliq.Reliq, size: int) -> None:
    """Held by consumers of a hundred messages each."""
    backlog(app, size)
    _consumers(app, size // _BATCH, _BATCH)


def consumers(app: reliq.Reliq, size: int) -> None:
    backlog(app, 1)
    _consumers(app, size, 0)


def _consumers(app: reliq.Reliq, count: int, held: int) -> None:
    keys = QueueKeys("bench")
    for _ in range(count):
        one = new_owner(connected=False)
        app.store.call(ops.register(keys, one, _LEASE))
        if held:
            app.store.call(ops.claim(keys, one, _LEASE, held))


def delayed(app: reliq.Reliq, size: int) -> None:
    for start in range(0, size, 10_000):
        app.queue("bench").send_many([BODY] * min(10_000, size - start), delay=3600)


def queues(app: reliq.Reliq, size: int) -> None:
    """Every tenth has a consumer and a delayed message, the others only a ready one."""
    for number in range(size):
        queue = app.queue(f"queue-{number}")
        queue.send(BODY)
        if number % 10 == 0:
            queue.send(BODY, delay=3600)
            app.store.call(ops.register(QueueKeys(queue.name), new_owner(connected=False), _LEASE))


def _cycles(app: reliq.Reliq, messages: int) -> float:
    """Messages/s of send, claim and ack, a hundred at a time, while everything else stays as it is."""
    queue, keys, one = app.queue("bench"), QueueKeys("bench"), new_owner(connected=False)
    app.store.call(ops.register(keys, one, _LEASE))
    bodies = [BODY] * _BATCH
    elements: list[bytes] = []
    began = time.perf_counter()
    for _ in range(max(1, messages // _BATCH)):
        queue.send_many(bodies)
        elements = app.store.call(ops.settle(keys, one, _LEASE, elements, (), _BATCH)).elements
    taken = time.perf_counter() - began
    app.store.call([ops.settle(keys, one, _LEASE, elements), ops.forget(keys, one, leaving=True)])
    return messages / taken


@contextlib.contextmanager
def state(build: Build, size: int) -> Iterator[reliq.Reliq]:
    with fresh_redis() as (server, _):
        app = reliq.Reliq(server.url)
        build(app, size)
        yield app
        app.close()


@contextlib.contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `reliq` command that has started, and has looked at everything once."""
    paths = os.pathsep.join(str(BENCH.parent / part) for part in (".", "monitor", "api"))
    process = subprocess.Popen([sys.executable, "-m", "reliq", *command], env={**os.environ, "PYTHONPATH": paths})
    try:
        time.sleep(3.0)  # it starts
        yield process
    finally:
        process.terminate()
        process.wait()


def monitoring(url: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    return running("monitor", "--quiet", "--url", url)


def monitor_shares(url: str) -> tuple[float, float]:
    """Of one core: the CPU time that a `reliq monitor` uses, and that of the Redis that does nothing but answer it."""
    with monitoring(url) as process:
        with redis.Redis.from_url(url) as client:
            watched = [psutil.Process(process.pid), psutil.Process(client.info("server")["process_id"])]
        before, began = _seconds(watched), time.monotonic()
        time.sleep(_WATCHED)
        taken = time.monotonic() - began
        monitor, server = ((now - then) / taken for now, then in zip(_seconds(watched), before, strict=True))
        return monitor, server


def _seconds(processes: list[psutil.Process]) -> list[float]:
    return [sum(one.cpu_times()[:2]) for one in processes]


def _row(setting: Setting, what: str, build: Build, small: int, large: int) -> Row:
    large = max(small, int(large * setting.scale))
    row = Row(f"flat: {what} {small:,} -> {large:,}")
    with state(build, small) as one, state(build, large) as other:
        rates: tuple[list[float], list[float]] = ([], [])
        for app in (one, other):
            _cycles(app, setting.volume(2_000))
        for number in range(5 * setting.rounds):
            for place in (0, 1) if number % 2 else (1, 0):
                rates[place].append(_cycles((one, other)[place], setting.volume(10_000)))
        monitor, server = monitor_shares(other.url)
    row.checks = [
        Check("throughput, large / small", ratios(rates[1], rates[0]), 0.8),
        Check("monitor, part of a core", [monitor], 0.05, at_least=False),
    ]
    row.notes = [f"Redis, for the monitor: {server:.4f} of a core"]
    row.figures = {"small": rates[0], "large": rates[1]}
    return row


_DIMENSIONS: tuple[tuple[str, Build, int, int, int], ...] = (
    ("backlog", backlog, 1_000, 100_000, 1_000_000),
    ("in flight", in_flight, 100, 10_000, 100_000),
    ("consumers", consumers, 1, 1_000, 1_000),
    ("delayed", delayed, 10, 100_000, 1_000_000),
    ("queues", queues, 1, 1_000, 1_000),
)


def rows(setting: Setting) -> list[Row]:
    found = []
    for what, build, small, short, full in _DIMENSIONS:
        found.append(_row(setting, what, build, small, full if setting.full else short))
        print(f"  {found[-1].what}: {found[-1].verdict}", flush=True)
    return found
