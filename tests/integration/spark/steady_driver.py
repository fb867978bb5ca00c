"""A driver that goes on whatever happens: `python steady_driver.py WORK URL FOLDER MASTER`, until FOLDER/stop exists.

jobs: two threads write named jobs into one queue, each job until Spark says that it is done. streams: files into a
queue, and that queue into files of Parquet, in turns. `done` has a line for each piece, `errors` one for each failure.
"""

import itertools
import json
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from reliq.spark import register
from tests.integration.spark.driver import run, session

WRITERS = ("a", "b")
ROWS, PARTITIONS = 3000, 3  #: of a job


class Steady:
    """The work; each piece is repeated until it has succeeded."""

    def __init__(self, url: str, folder: Path, master: str) -> None:
        self._url, self._folder = url, folder
        self._spark = session(url, master)
        self._spark.sparkContext.setLogLevel("WARN")  # lost tasks and executors are told
        self._spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 1000)

    def jobs(self) -> None:
        """Write jobs, in two threads."""
        threads = [threading.Thread(target=self._jobs, args=(name,)) for name in WRITERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

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

    def _jobs(self, name: str) -> None:
        self._until_done("register", partial(register, self._spark, self._url))
        done = self._folder / "done"
        before = done.read_text().split() if done.exists() else []
        for number in itertools.count(sum(job.startswith(f"{name}-") for job in before)):
            if self._stopped:
                return
            job = f"{name}-{number}"
            self._until_done(job, partial(write, self._spark, job))

    def streams(self) -> None:
        """Read files, and the queue that they have become, until both are empty; again and again."""
        last = False
        while not last:
            last = self._stopped
            lines = self._spark.readStream.schema("value string").text(str(self._folder / "in"))
            into = lines.writeStream.format("reliq").option("queue", "inbox")
            self._until_done("into", partial(run, into, str(self._folder / "into")))
            messages = self._spark.readStream.format("reliq").options(queue="inbox", maxMessagesPerBatch=300).load()
            out = messages.writeStream.format("parquet").option("path", str(self._folder / "out"))
            self._until_done("out", partial(run, out, str(self._folder)))


def write(spark: SparkSession, job: str) -> None:
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(f"concat('{job} ', id) AS value")
    rows.write.format("reliq").options(queue="orders", job=job).mode("append").save()


if __name__ == "__main__":
    steady = Steady(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    {"jobs": steady.jobs, "streams": steady.streams}[sys.argv[1]]()
