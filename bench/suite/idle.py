"""What idle systems ask for: their commands, and the threads and connections that they keep."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import psutil
import redis

import reliq
from bench.suite.contestants import BENCH
from bench.suite.flat import BODY, monitoring, running
from bench.suite.growth import Build, batches, command_rate, state
from bench.suite.harness import Check, Row, Setting, fresh_redis
from reliq.embedded import free_port
from reliq.model.keys import monitors_until
from reliq.protocol.workers import every_worker
from tests.support.cluster import Cluster
from tests.support.workers import eventually

MOST_OF_ONE = 5.0  #: commands/s of a worker and node
MOST_OF_ALL = 300.0  #: commands/s of 20 workers
MOST_OF_MONITOR = 100.0
_SETTLED = 12.0  #: seconds after which an idle worker, or a monitor, has read what it is to know
_AT_REST = 75.0  #: seconds after which a worker has closed the connections that it has not needed
_STARTED = 120.0  #: seconds until all have started, on a busy machine
_WATCHED = 15.0  #: seconds in which the commands are counted
_WATCHED_MONITOR = 30.0  #: seconds: then a monitor has read everything once more
_QUEUE = "bench"
_WORKER = """
import os
import reliq
from reliq.transport.store import Store
from reliq.worker import Options, Worker
app = reliq.Reliq(os.environ["RELIQ_URL"])
app.handler("bench")(lambda message: None)
Worker(Store(app.url), app.handlers, Options()).run()
"""


@contextlib.contextmanager
def workers(app: reliq.Reliq, count: int, rest: float) -> Iterator[list[int]]:
    """So many processes of a worker of one queue that have nothing to do, by their ids, after `rest` seconds."""
    paths = os.pathsep.join(str(BENCH.parent / part) for part in (".", "monitor", "api"))
    env = {**os.environ, "PYTHONPATH": paths, "RELIQ_URL": app.url}
    processes = [subprocess.Popen([sys.executable, "-c", _WORKER], env=env) for _ in range(count)]
    try:
        eventually(lambda: sum(one.follows for one in app.store.run(every_worker())) == count, timeout=_STARTED)
        time.sleep(rest)  # they share the partitions, and come to rest
        yield [one.pid for one in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def held(process: int, port: int) -> tuple[int, int]:
    """Return how many threads a process has, and how many connections to a port."""
    one = psutil.Process(process)
    to_port = [found for found in one.net_connections("tcp") if found.raddr and found.raddr.port == port]
    return one.num_threads(), len(to_port)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def partitions(app: reliq.Reliq, size: int) -> None:
    app.queue(_QUEUE).configure(partitions=size)
    app.queue(_QUEUE).stats()


def queues(app: reliq.Reliq, size: int) -> None:
    for number in range(size):
        app.queue(f"{_QUEUE}-{number}").send(BODY)


def delayed_queues(app: reliq.Reliq, size: int) -> None:
    for number in range(size):
        app.queue(f"{_QUEUE}-{number}").send(BODY, delay=3600)


def queues_of_partitions(app: reliq.Reliq, size: int) -> None:
    for number in range(size // 64):
        queue = app.queue(f"{_QUEUE}-{number}")
        queue.configure(partitions=64)
        queue.send_many([BODY] * 64)


def _row(what: str, rate: float, bound: float, kept: Sequence[tuple[int, int]] = ()) -> Row:
    """Return the row of an idle system: its commands/s, and the threads and connections of its first process."""
    row = Row(f"idle: {what}", [Check("commands/s", [rate], bound, at_least=False)], figures={"rate": rate})
    for threads, connections in kept[:1]:
        row.checks += [
            Check("threads", [float(threads)], 8, at_least=False),
            Check("connections", [float(connections)], 8, at_least=False),
        ]
    return row


def _workers(size: int, count: int, bound: float, rest: float = _SETTLED) -> Row:
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        if size > 1:
            partitions(app, size)
        with workers(app, count, rest) as processes:
            rate = command_rate([client], _WATCHED)
            kept = [held(one, server.port) for one in processes[:1]]
    of = f"of {size} partitions" if size > 1 else "of one queue"
    return _row(f"a worker {of}" if count == 1 else f"workers {of}, {count}", rate, bound, kept)


def _full(count: int) -> Row:
    """Their queue has messages, and no slot is free."""
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app:
        queue = app.queue(_QUEUE)
        queue.configure(concurrency=1)
        queue.send_many([BODY] * 10)
        with queue.consumer() as consumer:
            if not consumer.claim(limit=1, wait=1):
                raise RuntimeError("the only slot could not be taken")
            with workers(app, count, _SETTLED):
                rate = command_rate([client], _WATCHED)
    return _row(f"workers of a queue without a free slot, {count}", rate, MOST_OF_ONE * count)


def _monitor(what: str, build: Build, size: int, count: int = 1) -> Row:
    with state(build, size) as (app, client), ExitStack() as stack:
        pids = [stack.enter_context(monitoring(app.url)).pid for _ in range(count)]
        eventually(lambda: client.zcard(monitors_until("0")) == count, timeout=_STARTED)
        time.sleep(_SETTLED + size / 1000)  # what they are to know of each they read once
        rate = command_rate([client], _WATCHED_MONITOR)
        kept = [held(one, client.get_connection_kwargs()["port"]) for one in pids]
    monitors = "a monitor" if count == 1 else f"{count} monitors"
    return _row(f"{monitors}, {what}, {size:,}", rate, MOST_OF_MONITOR * count, kept)


def _monitor_of_cluster(masters: int, size: int) -> Row:
    with Cluster(masters, replicas=False) as cluster, reliq.Reliq(cluster.url) as app, ExitStack() as stack:
        partitions(app, size)
        clients = [stack.enter_context(redis.Redis(port=one.port)) for one in cluster.servers]
        monitor = stack.enter_context(monitoring(app.url))
        eventually(lambda: all(one.keys("reliq:monitor:*:until") for one in clients), timeout=_STARTED)
        time.sleep(_SETTLED)
        rate = command_rate(clients, _WATCHED_MONITOR)
        kept = [held(monitor.pid, one.port) for one in cluster.servers]
    row = _row(f"a monitor, partitions on {masters} masters, {size}", rate, MOST_OF_MONITOR)
    row.notes = [f"connections to each master: {', '.join(str(connections) for _, connections in kept)}"]
    return row


def _connections(size: int) -> Row:
    """Listing the connections takes the server 5 us for each, during which it serves no other client."""
    row = Row(f"idle: a monitor, connections, {size:,}")
    with state(queues, 1) as (app, client), ExitStack() as stack:
        for number in range(size):
            one = redis.Connection(**{**client.get_connection_kwargs(), "client_name": f"reliq:c{number}"})
            stack.callback(one.disconnect)
            one.connect()
        with monitoring(app.url):
            eventually(lambda: client.zcard(monitors_until("0")), timeout=_STARTED)
            time.sleep(_SETTLED)
            client.config_resetstat()
            time.sleep(_WATCHED)
            listed = client.info("commandstats").get("cmdstat_client|list", {"usec": 0})
    row.checks = [Check("CLIENT LIST, ms of each second", [listed["usec"] / 1000 / _WATCHED], 5.0, at_least=False)]
    return row


def _service(size: int) -> Row:
    """Measure an HTTP service that nobody uses."""
    port = free_port()
    command = ("api", "--no-auth", "--quiet", "--port", str(port), "--url")
    with state(queues, size) as (app, client), running(*command, app.url) as process:
        eventually(lambda: listens(port), timeout=_STARTED)
        time.sleep(_SETTLED)
        rate = command_rate([client], _WATCHED_MONITOR)
        kept = held(process.pid, client.get_connection_kwargs()["port"])
    return _row(f"HTTP service, queues, {size:,}", rate, 1500.0, [kept])


def _waiting(what: str, bound: float, size: int, call: Callable[[Any], Callable[..., object]]) -> Row:
    """Measure a call of this process that waits for messages, of which there are none."""
    with fresh_redis() as (server, client), reliq.Reliq(server.url) as app, ExitStack() as stack:
        if size > 1:
            partitions(app, size)
        before = held(os.getpid(), server.port)
        take = call(stack.enter_context(app.queue(_QUEUE).consumer()) if size > 1 else app.queue(_QUEUE))
        waiting = threading.Thread(target=take, kwargs={"wait": _SETTLED + 2 * _WATCHED})
        waiting.start()
        time.sleep(_SETTLED)
        rate = command_rate([client], _WATCHED)
        now = held(os.getpid(), server.port)
        waiting.join()
    return _row(what, rate, bound, [(now[0] - before[0], now[1] - before[1])])


def rows(setting: Setting) -> Iterator[Row]:
    """Measure idle workers, monitors of idle queues, and calls that wait."""
    for row in _rows(setting):
        print(f"  {row.what}: {row.verdict}", *row.checks, sep="\n    ", flush=True)
        yield row


def _rows(setting: Setting) -> Iterator[Row]:
    many = setting.volume(1000)
    yield _monitor("queues", queues, many)
    yield _monitor("partitions", queues_of_partitions, max(64, setting.volume(1024)))
    yield _monitor("partitions", queues_of_partitions, max(64, setting.volume(1024)), count=3)
    yield _monitor("queues with a delayed message each", delayed_queues, setting.volume(3000))
    yield _monitor("open batches", batches, setting.volume(10_000))
    yield _monitor_of_cluster(3, 12)
    for size in (1, 16, 64, 256):
        yield _workers(size, 1, MOST_OF_ONE, _AT_REST)
    for size in (16, 64, 256):
        yield _workers(size, max(1, setting.volume(20)), MOST_OF_ALL)
    yield _full(max(1, setting.volume(20)))
    yield _waiting("a consumer by hand, 256 partitions", 30.0, 256, lambda consumer: consumer.claim)
    yield _waiting("a receive that waits", 40.0, 1, lambda queue: queue.receive)
    yield _service(many)
    yield _connections(setting.volume(5000))
