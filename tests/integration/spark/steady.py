"""A steady driver (steady_driver.py) from outside: its processes, its files, and what Redis holds of its work."""

import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.campaign.servers import ClusterServer, Server
from tests.integration.spark import steady_driver
from tests.support.workers import surroundings

LINES = 100  #: of a file that the stream reads
PATIENCE = 900.0  #: seconds for a step, on a busy machine
#: What of a batch can be seen from outside, in order: a file of its query, or a key of Redis.
STEPS = {
    "into": ("offsets", "staged", "commits"),
    "out": ("offsets", "claimed", "written", "commits"),
}


class Missed(Exception):
    """The fault has hit nothing: it does not count."""


@dataclass
class System:
    """The driver, its server, and what can be seen of them from outside."""

    work: str
    server: Server
    folder: Path
    master: str = "local[4,4]"
    chance: random.Random = field(default_factory=lambda: random.Random(os.environ.get("SPARK_SEED", "7")))
    files: int = 0  #: that the stream may read
    generation: int = -1
    seen: frozenset[bytes] = frozenset()  #: what was staged or claimed when the last fault struck
    steps: Iterator[tuple[str, str, int]] = field(
        default_factory=lambda: itertools.cycle(
            (part, step, batch) for part, steps in STEPS.items() for step in steps for batch in (0, 1)
        )
    )

    def __post_init__(self) -> None:
        if self.work == "streams":
            self.next_generation()

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
    def progress(self) -> Counter[str]:
        """How many jobs each writer, or batches each stream has committed."""
        if self.work == "jobs":
            return Counter(one.split("-")[0] for one in self.done)
        batches = self.folder.glob("generation-*/*/checkpoint/commits/[0-9]*")
        return Counter(one.parts[-4] for one in batches)

    @property
    def parts(self) -> tuple[str, ...]:
        """What the work consists of."""
        return steady_driver.WRITERS if self.work == "jobs" else tuple(STEPS)

    def next_generation(self) -> None:
        """Have the streams begin with new checkpoints."""
        self.generation += 1
        (self._here / "in").mkdir(parents=True)
        (self.folder / "hidden").write_text(str(self.generation))
        (self.folder / "hidden").rename(self.folder / "generation")

    @property
    def _here(self) -> Path:
        return self.folder / f"generation-{self.generation}"

    def feed(self) -> None:
        """Give the stream a file to read."""
        if self.work == "streams":
            lines = "".join(f"{number}\n" for number in range(self.files * LINES, (self.files + 1) * LINES))
            (self.folder / "hidden").write_text(lines)
            (self.folder / "hidden").rename(self._here / "in" / f"{self.files}.txt")
            self.files += 1

    def goes_on(self) -> None:
        """Wait until each part of the work has been done once more."""
        begun = self.progress
        self.feed()
        self._until(
            lambda: all(self.progress[part] > begun[part] for part in self.parts),
            lambda: f"the driver goes on; its errors end with {self.errors[-3:]}",
        )

    def _until(self, condition: Callable[[], object], what: Callable[[], str]) -> None:
        """Wait, feeding the stream now and then."""
        began = fed = time.monotonic()
        while not condition():
            assert self.driver.poll() is None, (self.folder / "log").read_text(errors="replace")[-4000:]
            now = time.monotonic()
            assert now < began + PATIENCE, what()
            if now > fed + 3:
                self.feed()
                fed = now
            time.sleep(0.005)

    def stop(self) -> None:
        """Let the driver end what it has begun."""
        (self.folder / "stop").touch()
        assert self.driver.wait(timeout=PATIENCE) == 0

    def wait_for_work(self) -> None:
        """Wait until a part is staged, or a batch claimed, that was not there before; then for up to 0.1 s more."""
        self.feed()
        self._until(lambda: self._held - self.seen, lambda: "something is staged or claimed")
        time.sleep(0.1 * self.chance.random())
        self.seen = self._held

    @property
    def _held(self) -> frozenset[bytes]:
        return self._keys("staged:*" if self.work == "jobs" else "processing:s*")

    def _keys(self, end: str) -> frozenset[bytes]:
        pattern = f"reliq:{{{self.queue}}}:{end}"
        if isinstance(self.server, ClusterServer):
            return frozenset(self.server.cluster.keys(pattern, self.queue))
        return frozenset(self.server.keys(pattern))

    def wait_for_step(self) -> str:
        """Wait until the next of all steps of a batch of a stream; half of them are of the first batch of a query."""
        part, step, batch = next(self.steps)
        if not batch:
            self.next_generation()
        here = self._here / part / "checkpoint"
        number = batch and len([*(here / "commits").glob("[0-9]*")]) + 1
        path = self._here / "lake" / "_spark_metadata" / str(number) if step == "written" else here / step / str(number)
        before = self._keys("staged:*")
        reached: Callable[[], object] = path.exists
        if step == "staged":
            reached = lambda: self._keys("staged:*") - before  # noqa: E731
        elif step == "claimed":
            reached = lambda: self._keys(f"processing:s*.{number + 1}")  # noqa: E731
        self.feed()
        self._until(
            reached, lambda: f"{part} comes to {step} of batch {number}; its errors end with {self.errors[-3:]}"
        )
        return f"{part}, {step}, {'first' if not number else 'later'} batch"

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python workers that run tasks, or that plan, read or commit for the driver."""
        forked = [one for one in self.processes("pyspark.daemon") if "pyspark.daemon" in command_of(one.parent())]
        return forked + self.processes("python_streaming_source_runner")

    def processes(self, words: str) -> list[psutil.Process]:
        """Return the processes below the driver with these words in their commands, or of this user, on a cluster."""
        above = psutil.Process(self.driver.pid) if self.master.startswith("local") else psutil.Process()
        return [one for one in above.children(recursive=True) if words in command_of(one)]

    @contextmanager
    def struck(self, *evidence: Callable[[], int], within: float = 5.0) -> Iterator[None]:
        """Wait for a sign that what is done inside has struck; raises Missed if there is none for so many seconds."""
        before = [count() for count in evidence]
        yield
        until = time.monotonic() + within
        while all(count() <= former for count, former in zip(evidence, before, strict=True)):
            if time.monotonic() > until:
                raise Missed
            time.sleep(0.02)


def command_of(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process else ""
    except psutil.Error:
        return ""
