"""Faults under a driver that goes on: two writers of jobs on one queue, or a stream into a queue and one out of it.

SPARK_KILLS=20 python -m pytest tests/integration/spark/test_faults.py -m slow: so many faults of each row. A fault
counts once the driver's log, or what Redis has staged, shows that it has struck. The queues and the files are read
without the connector.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import reliq
from tests.campaign.servers import ClusterServer, SentinelServer, Server
from tests.integration.spark import steady_driver
from tests.integration.spark.standalone import standalone
from tests.integration.spark.test_killed_drivers import kill
from tests.support.monitors import Monitors
from tests.support.workers import eventually, surroundings

FAULTS = int(os.environ.get("SPARK_KILLS", "3"))
LINES = 100  #: of a file that the stream reads
PATIENCE = 900.0  #: seconds for a step, on a busy machine
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1800 + 300 * FAULTS)]

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass
class System:
    """The driver, its server, and what can be seen of them from outside."""

    work: str
    server: Server
    folder: Path
    master: str = "local[4,4]"
    chance: random.Random = field(default_factory=lambda: random.Random(FAULTS))
    files: int = 0  #: that the stream may read

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [
                sys.executable,
                steady_driver.__file__,
                self.work,
                self.server.url,
                str(self.folder),
                self.master,
            ]
            environment = {**surroundings(), "PYSPARK_PYTHON": sys.executable}
            self.driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    @property
    def done(self) -> list[str]:
        """What the driver takes for done."""
        return self._lines("done")

    @property
    def errors(self) -> list[str]:
        return self._lines("errors")

    def lost(self, what: str) -> int:
        """Return how many tasks or executors Spark has lost."""
        return (self.folder / "log").read_text(errors="replace").count(f"Lost {what}")

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    @property
    def queue(self) -> str:
        return "orders" if self.work == "jobs" else "inbox"

    @property
    def parts(self) -> tuple[str, ...]:
        """What the work consists of."""
        return steady_driver.WRITERS if self.work == "jobs" else ("into", "out")

    def feed(self) -> None:
        """Give the stream a file to read."""
        lines = "".join(f"{number}\n" for number in range(self.files * LINES, (self.files + 1) * LINES))
        (self.folder / "hidden").write_text(lines)
        (self.folder / "hidden").rename(self.folder / "in" / f"{self.files}.txt")
        self.files += 1

    def goes_on(self) -> None:
        """Wait until each part of the work has been done once more."""
        begun = Counter(one.split("-")[0] for one in self.done)
        self.feed()

        def more() -> bool:
            assert self.driver.poll() is None, (self.folder / "log").read_text(errors="replace")[-4000:]
            now = Counter(one.split("-")[0] for one in self.done)
            return all(now[part] > begun[part] for part in self.parts)

        eventually(more, timeout=PATIENCE, what=f"the driver goes on; its errors end with {self.errors[-3:]}")

    def stop(self) -> None:
        """Let the driver end what it has begun."""
        (self.folder / "stop").touch()
        assert self.driver.wait(timeout=PATIENCE) == 0

    def wait_for_work(self) -> None:
        """Wait until something is staged, or a batch of the stream is claimed; then for up to 0.1 s more."""
        self.feed()
        eventually(self._at_work, timeout=PATIENCE)
        time.sleep(0.1 * self.chance.random())

    def _at_work(self) -> int:
        pattern = f"reliq:{{{self.queue}}}:{'staged' if self.work == 'jobs' else 'processing'}:*"
        if isinstance(self.server, ClusterServer):
            return len(self.server.cluster.keys(pattern, self.queue))
        return len(self.server.keys(pattern))

    def processes(self, words: str) -> list[psutil.Process]:
        """Return the processes below the driver with these words in their commands, or of this user, on a cluster."""
        above = psutil.Process(self.driver.pid) if self.master.startswith("local") else psutil.Process()
        return [one for one in above.children(recursive=True) if words in command_of(one)]


def command_of(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process else ""
    except psutil.Error:
        return ""


@contextmanager
def struck(system: System, *evidence: Callable[[], int]) -> Iterator[None]:
    """Wait for a sign that what is done inside has struck; raises Missed if the work goes on without."""
    before, jobs = [count() for count in evidence], len(system.done)
    yield
    until = time.monotonic() + PATIENCE
    while all(count() <= former for count, former in zip(evidence, before, strict=True)):
        assert time.monotonic() < until, "neither a sign of the fault, nor of work"
        if len(system.done) > jobs + 6:
            raise Missed
        time.sleep(0.02)


class Missed(Exception):
    """The fault has hit nothing: it does not count."""


def kill_worker(system: System) -> None:
    """kill -9 of a Python worker: one that runs a task, or that plans or commits for the driver."""
    forked = [one for one in system.processes("pyspark.daemon") if "pyspark.daemon" in command_of(one.parent())]
    if not forked:
        raise Missed
    times = {one: spent(one) for one in forked}
    time.sleep(0.03)
    busy = [one for one in forked if spent(one) > times[one]]
    with struck(system, lambda: system.lost("task"), lambda: len(system.errors)):
        system.chance.choice(busy or forked).kill()


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
    with struck(system, lambda: system.lost("executor")):
        system.chance.choice(executors).kill()


def kill_driver(system: System) -> None:
    """kill -9 of the driver with all its processes, while a job is staged; then it starts again."""
    system.wait_for_work()
    kill(system.driver)
    system.start()


def kill_redis(system: System) -> None:
    """kill -9 of Redis, which has on its disk what it has answered, while a job is staged."""
    system.wait_for_work()
    system.server.redis.kill()
    time.sleep(2 * system.chance.random())
    system.server.redis.start()


def fill_memory(system: System) -> None:
    """No memory left in Redis, until the driver has been refused; then it gets memory again."""
    with struck(system, lambda: len(system.errors)):
        system.server.ask("CONFIG", "SET", "maxmemory", "1")
    time.sleep(system.chance.random())
    system.server.ask("CONFIG", "SET", "maxmemory", "0")


def fail_over(kind: str) -> Callable[[System], None]:
    def fault(system: System) -> None:
        assert isinstance(system.server, SentinelServer)
        system.wait_for_work()
        system.server.fleet.fail_over(kind)

    return fault


def move_slot(system: System) -> None:
    """The slot of the queue goes to another master of the cluster, while a job is staged."""
    assert isinstance(system.server, ClusterServer)
    system.wait_for_work()
    system.server.cluster.move_slot(system.queue)


@pytest.mark.parametrize(
    ("work", "fault", "server", "settings"),
    [
        pytest.param("jobs", kill_worker, Server, (), id="jobs-python-workers"),
        pytest.param("jobs", kill_executor, Server, (), id="jobs-executors"),
        pytest.param("jobs", kill_driver, Server, (), id="jobs-drivers"),
        pytest.param("jobs", kill_redis, Server, ALWAYS, id="jobs-redis-restarts"),
        pytest.param("streams", kill_redis, Server, ALWAYS, id="streams-redis-restarts"),
        pytest.param("jobs", fill_memory, Server, ("--maxmemory-policy", "noeviction"), id="jobs-memory-full"),
        pytest.param("jobs", move_slot, ClusterServer, (), id="jobs-slot-moves"),
        pytest.param("jobs", fail_over("planned"), SentinelServer, (), id="jobs-sentinel-planned"),
        pytest.param("jobs", fail_over("killed"), SentinelServer, (), id="jobs-sentinel-killed"),
    ],
)
def test_each_row_is_written_once_and_each_message_read_once(work, fault, server, settings, tmp_path):
    (tmp_path / "in").mkdir()
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
        counted = missed = 0
        while counted < FAULTS:
            try:
                fault(system)
            except Missed:
                missed += 1
                continue
            counted += 1
            system.goes_on()
            print(f"{counted} faults, {missed} without effect, {len(system.errors)} failures seen", flush=True)
        system.stop()
        if work == "jobs":
            check_jobs(app, system)
        else:
            check_stream(app, system)


def check_jobs(app: reliq.Reliq, system: System) -> None:
    """Each row of each job that the driver takes for done is in the queue once, and nothing else is."""
    jobs = [one for one in system.done if one != "register"]
    assert len(set(jobs)) == len(jobs) > FAULTS
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


def check_stream(app: reliq.Reliq, system: System) -> None:
    """Each line of the files is once in the files of Parquet that the sink has committed."""
    stats = app.queue("inbox").stats()
    assert (stats.ready, stats.processing, stats.dead) == (0, 0, 0)
    log = system.folder / "out" / "_spark_metadata"
    found = Counter[int]()
    for batch in sorted(log.iterdir()):
        if batch.name.isdecimal():
            for line in batch.read_text().splitlines()[1:]:
                table = pq.read_table(system.folder / "out" / Path(json.loads(line)["path"]).name, columns=["value"])
                found.update(int(value) for value in table.column("value").to_pylist())
    assert set(found) == set(range(system.files * LINES))
    assert found.total() == len(found)
    print(f"{len(found)} lines", flush=True)
