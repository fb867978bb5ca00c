"""A job on a cluster of two workers, with tasks that fail, die and are overtaken by a speculative twin.

Arguments: the Spark master, the Redis URL, a folder in which each attempt leaves a file, the rows of a partition.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from reliq.spark import register

PARTITIONS = 6
FAILS, DIES, LAGS = 1, 2, 5


def main(master: str, url: str, folder: str, rows: int) -> None:
    def misbehave(batches: Iterable) -> Iterator:
        """Attempts do something wrong after they have staged at least one batch."""
        task = TaskContext.get()
        assert task is not None
        partition, attempt = task.partitionId(), task.attemptNumber()
        first = attempt == 0
        for number, batch in enumerate(batches):
            yield batch
            if number != 1:
                continue
            (Path(folder) / f"{partition}-{attempt}").touch()
            if first and partition == FAILS:
                raise RuntimeError("a task that fails")
            if first and partition == DIES:
                os._exit(1)
            if first and partition == LAGS:
                until = time.monotonic() + 60
                while not list(Path(folder).glob(f"{LAGS}-[1-9]*")) and time.monotonic() < until:
                    time.sleep(0.05)

    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.minTaskRuntime", "100ms")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .getOrCreate()
    )
    register(spark, url)
    df = spark.range(0, PARTITIONS * rows, 1, PARTITIONS).selectExpr("to_json(struct(id AS order)) AS value")
    rows_written = df.mapInArrow(misbehave, "value string")
    rows_written.write.format("reliq").options(queue="orders", job="load").mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
