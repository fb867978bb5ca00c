"""A driver that goes on whatever happens: `python steady_driver.py WORK URL FOLDER MASTER`, until FOLDER/stop exists.

jobs: two threads write named jobs into one queue, each job until Spark says that it is done. streams: files into a
queue, and that queue into files of Parquet, at the same time; both with new checkpoints whenever FOLDER/generation says
so. `done` has a line for each piece, `errors` one for each failure.
"""

import itertools
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from reliq.spark import register
from tests.integration.spark.driver import run, session

WRITERS = ("a", "b")
ROWS, PARTITIONS = 3000, 6  #: of a job
PACES = ("1GiB", "40KiB", "150KiB")  #: bytes a second of one job after the other: faults meet tasks that take a while


class Steady:
    """The work; each piece is repeated until it has succeeded."""

    def __init__(self, url: str, folder: Path, master: str) -> None:
        self._url, self._folder = url, folder
        self._spark = session(url, master)
        self._spark.sparkContext.setLogLevel("WARN")  # lost tasks and executors are told
        self._spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 1000)

    def jobs(self) -> None:
        """Write jobs, in two threads."""
        _at_once(*(partial(self._jobs, name) for name in WRITERS))

    @property
    def _stopped(self) -> bool:
        return (self._folder / "stop").exists()

    def _until_done(self, what: str, work: Callable[[], object]) -> None:
        while True:
            try:
                work()
            except Exception as error:
                self._note("errors", json.dumps([what, str(error)[:2000]]))
            else:
                self._note("done", what)
                return

    def _note(self, file: str, line: str) -> None:
        with (self._folder / file).open("a") as lines:
            lines.write(f"{line}\n")

    def _done(self, name: str) -> int:
        """How many pieces with this name were done, also by drivers before this one."""
        done = self._folder / "done"
        return sum(line.startswith(f"{name}-") for line in (done.read_text().split() if done.exists() else []))

    def _jobs(self, name: str) -> None:
        self._until_done("register", partial(register, self._spark, self._url))
        for number in itertools.count(self._done(name)):
            if self._stopped:
                return
            job = f"{name}-{number}"
            self._until_done(job, partial(write, self._spark, job, PACES[number % len(PACES)]))

    def streams(self) -> None:
        """Read files, and the queue that they become, one generation of checkpoints after the other."""
        for number in itertools.count(self._done("generation")):
            parts = {"into": self._into, "out": self._out}
            _at_once(*(partial(self._while_wanted, part, number) for part in parts.values()))
            for name, part in parts.items():  # until files and queue are empty
                self._until_done(name, partial(run, part(number), str(self._generation(number) / name)))
            self._note("done", f"generation-{number}")
            if self._stopped and number == self._latest:
                return

    def _generation(self, number: int) -> Path:
        return self._folder / f"generation-{number}"

    @property
    def _latest(self) -> int:
        return int((self._folder / "generation").read_text())

    def _wanted(self, number: int) -> bool:
        return not self._stopped and self._latest == number

    def _while_wanted(self, part: Callable[[int], DataStreamWriter], number: int) -> None:
        """Run a query, again whenever it fails."""
        self._until_done("register", partial(register, self._spark, self._url))
        name = part.__name__.removeprefix("_")
        while self._wanted(number):
            try:
                checkpoint = str(self._generation(number) / name / "checkpoint")
                query = part(number).option("checkpointLocation", checkpoint).start()
                while self._wanted(number):
                    query.awaitTermination(1)
                query.stop()
            except Exception as error:
                self._note("errors", json.dumps([name, str(error)[:2000]]))

    def _into(self, number: int) -> DataStreamWriter:
        lines = self._spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        files = lines.text(str(self._generation(number) / "in"))
        return files.writeStream.format("reliq").option("queue", "inbox")

    def _out(self, number: int) -> DataStreamWriter:
        messages = self._spark.readStream.format("reliq").options(queue="inbox", maxMessagesPerBatch=300).load()
        lake = str(self._generation(number) / "lake")
        return messages.writeStream.format("parquet").option("path", lake)


def _at_once(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def write(spark: SparkSession, job: str, pace: str) -> None:
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(f"concat('{job} ', id) AS value")
    rows.write.format("reliq").options(queue="orders", job=job, maxBytesPerSecond=pace).mode("append").save()


if __name__ == "__main__":
    steady = Steady(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    {"jobs": steady.jobs, "streams": steady.streams}[sys.argv[1]]()
