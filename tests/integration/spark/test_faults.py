"""Faults under a driver that goes on: two writers of jobs on one queue, or a stream into a queue and one out of it.

SPARK_KILLS=200 python -m pytest tests/integration/spark/test_faults.py -m slow: so many faults of each row. A fault
counts once the driver's log, or what Redis has staged, shows that it has struck. The queues and the files are read
without the connector.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import reliq
from tests.campaign.servers import ClusterServer, SentinelServer, Server
from tests.integration.spark import steady_driver
from tests.integration.spark.standalone import standalone
from tests.integration.spark.steady import LINES, PATIENCE, Missed, System
from tests.integration.spark.test_killed_drivers import kill
from tests.support.monitors import Monitors
from tests.support.workers import eventually, surroundings

FAULTS = int(os.environ.get("SPARK_KILLS", "3"))
MINUTES = float(os.environ.get("SPARK_MINUTES", "inf"))  #: after which a row ends with the faults that it has
GOES_ON = 10  #: faults, after which all parts of the work have to go on
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800 + 300 * FAULTS)]

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
FULL = ("--maxmemory-policy", "noeviction")

Fault = Callable[[System], object]


def kill_worker(system: System) -> None:
    """kill -9 of a Python worker that runs a task, or plans, reads or commits for the driver; all if none is busy."""
    if system.work == "streams":
        system.feed()
    time.sleep(0.5 * system.chance.random())
    workers = system.workers
    times = {one: spent(one) for one in workers}
    time.sleep(0.03)
    busy = [one for one in workers if spent(one) > times[one]]
    if not workers:
        raise Missed
    kill_all(system, [system.chance.choice(busy)] if busy else workers)


def kill_all(system: System, workers: list[psutil.Process]) -> None:
    with system.struck(lambda: system.lost("task"), lambda: len(system.errors)):
        for one in workers:
            one.kill()


def kill_at_step(system: System) -> str:
    """kill -9 of all Python workers, with all that the connector has on the driver, at one step of a batch."""
    step = system.wait_for_step()
    kill_all(system, system.workers)
    return step


def kill_driver_at_step(system: System) -> str:
    """The same for the driver with all its processes; then it starts again."""
    step = system.wait_for_step()
    kill(system.driver)
    system.start()
    return step


def spent(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.Error:
        return -1.0


def kill_executor(system: System) -> None:
    """kill -9 of an executor of the cluster."""
    executors = system.processes("CoarseGrainedExecutorBackend")
    if not executors:
        raise Missed
    with system.struck(lambda: system.lost("executor"), within=60):
        system.chance.choice(executors).kill()


def kill_driver(system: System) -> None:
    """kill -9 of the driver with all its processes, while a job is staged; then it starts again."""
    system.wait_for_work()
    kill(system.driver)
    system.start()


def kill_redis(system: System) -> None:
    """kill -9 of Redis, which has on its disk what it has answered, while a job is staged or a batch claimed."""
    system.wait_for_work()
    system.server.redis.kill()
    time.sleep(2 * system.chance.random())
    system.server.redis.start()


def fill_memory(system: System) -> None:
    """No memory left in Redis, until the driver has been refused; then it gets memory again."""
    system.wait_for_work()
    try:
        with system.struck(lambda: len(system.errors), within=60):
            system.server.ask("CONFIG", "SET", "maxmemory", "1")
            system.feed()
        time.sleep(system.chance.random())
    finally:
        system.server.ask("CONFIG", "SET", "maxmemory", "0")


def fail_over(kind: str) -> Fault:
    def fault(system: System) -> None:
        assert isinstance(system.server, SentinelServer)
        system.wait_for_work()
        system.server.fleet.fail_over(kind)

    return fault


def move_slot(system: System) -> None:
    """The slot of the queue goes to another master of the cluster, while a job is staged or a batch claimed."""
    assert isinstance(system.server, ClusterServer)
    system.wait_for_work()
    system.server.cluster.move_slot(system.queue)


def row(work: str, name: str, fault: Fault, server: type[Server] = Server, settings: tuple[str, ...] = ()):
    return pytest.param(work, fault, server, settings, id=f"{work}-{name}")


@pytest.mark.parametrize(
    ("work", "fault", "server", "settings"),
    [
        row("jobs", "python-workers", kill_worker),
        row("jobs", "executors", kill_executor),
        row("jobs", "drivers", kill_driver),
        row("streams", "python-workers", kill_worker),
        row("streams", "workers-at-each-step", kill_at_step),
        row("streams", "drivers-at-each-step", kill_driver_at_step),
        *(
            one
            for work in ("jobs", "streams")
            for one in (
                row(work, "redis-restarts", kill_redis, Server, ALWAYS),
                row(work, "memory-full", fill_memory, Server, FULL),
                row(work, "slot-moves", move_slot, ClusterServer),
                row(work, "sentinel-planned", fail_over("planned"), SentinelServer),
                row(work, "sentinel-killed", fail_over("killed"), SentinelServer),
            )
        ),
    ],
)
def test_each_row_is_written_once_and_each_message_read_once(work, fault, server, settings, tmp_path):
    with ExitStack() as stack:
        system = System(work, stack.enter_context(server(tmp_path, settings)), tmp_path)
        app = stack.enter_context(reliq.Reliq(system.server.url))
        if server is SentinelServer:
            app.queue(system.queue).configure(durability="replicas=1")
        if fault is kill_executor:
            environment = {**surroundings(), "PYSPARK_PYTHON": sys.executable}
            environment["SPARK_MASTER_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
            system.master = stack.enter_context(standalone(tmp_path, environment))
        stack.enter_context(Monitors(system.server.url, tmp_path)).start()
        system.start()
        stack.callback(lambda: kill(system.driver))
        system.goes_on()
        strike(system, fault)
        system.stop()
        if work == "jobs":
            check_jobs(app, system)
        else:
            check_stream(app, system, twice=server is SentinelServer)


def strike(system: System, fault: Fault) -> None:
    counted = missed = 0
    until = time.monotonic() + 60 * MINUTES
    while counted < FAULTS and (counted == 0 or time.monotonic() < until):
        try:
            what = fault(system)
        except Missed:
            missed += 1
            continue
        counted += 1
        if counted % GOES_ON == 0 or counted == FAULTS:
            system.goes_on()
        told = f"{counted} faults, {missed} without effect, {len(system.errors)} failures seen {what or ''}"
        print(time.strftime("%H:%M:%S"), told, flush=True)


def check_jobs(app: reliq.Reliq, system: System) -> None:
    """Each row of each job that the driver takes for done is in the queue once, and nothing else is."""
    jobs = [one for one in system.done if one != "register"]
    assert len(set(jobs)) == len(jobs) > 1
    found = Counter(text for text in everything(app.queue("orders")))
    wanted = Counter(f"{job} {row}" for job in jobs for row in range(steady_driver.ROWS))
    assert found == wanted, (list((found - wanted).items())[:5], list((wanted - found).items())[:5])
    print(f"{len(jobs)} jobs, {found.total()} rows", flush=True)


def everything(queue: reliq.Queue) -> Iterator[str]:
    eventually(lambda: not queue.stats().processing, timeout=PATIENCE)
    with queue.consumer() as consumer:
        while batch := consumer.claim(1000):
            yield from (message.body.decode() for message in batch)
            consumer.ack(*batch)


def check_stream(app: reliq.Reliq, system: System, *, twice: bool) -> None:
    """Each line of the files is once in the files of Parquet that the sinks have committed.

    `twice`: more often too, as a failover may lose a claim, which is confirmed by no replica.
    """
    stats = app.queue("inbox").stats()
    assert (stats.ready, stats.processing, stats.dead) == (0, 0, 0)
    found = Counter[int]()
    for batch in sorted(system.folder.glob("generation-*/lake/_spark_metadata/[0-9]*")):
        for line in batch.read_text().splitlines()[1:]:
            table = pq.read_table(batch.parents[1] / Path(json.loads(line)["path"]).name, columns=["value"])
            found.update(int(value) for value in table.column("value").to_pylist())
    assert set(found) == set(range(system.files * LINES))
    assert twice or found.total() == len(found), [line for line, times in found.items() if times > 1][:20]
    print(f"{len(found)} lines, {found.total() - len(found)} again, {system.generation + 1} checkpoints", flush=True)
