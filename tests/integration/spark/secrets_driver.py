"""A driver with Spark's pages and its event log on: prints all that Spark shows of jobs that use a Redis URL.

Arguments: folder for event log and checkpoints, the URL, a reference to it. Every kind of job runs with the reference
in the option `connection`, with the URL in the option `url`, and with the URL that was given to register.
"""

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import reliq.spark

EXPLAINED = ("simple", "extended", "codegen", "cost", "formatted")


def jobs(spark: SparkSession, folder: Path, options: dict[str, str]) -> Iterator[DataFrame]:
    """Each kind of job once; yields what has a plan to show."""
    given = {"queue": folder.name, **options}
    rows = spark.createDataFrame([("a",), ("b",)], "value string")
    rows.write.format("reliq").options(**given).mode("append").save()
    read = spark.read.format("reliq").options(**given).load()
    assert len(read.collect()) == 2
    yield read
    clause = ", ".join(f"{name} '{value}'" for name, value in given.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING reliq OPTIONS ({clause})")
    yield spark.sql("SELECT count(*) FROM orders")
    spark.sql("SELECT count(*) FROM orders").collect()
    (folder / "in").mkdir()
    (folder / "in" / "one.txt").write_text("c\n")
    incoming = spark.readStream.format("text").load(str(folder / "in"))
    yield from streams(incoming, spark.readStream.format("reliq").options(**given).load(), folder, given)


def streams(incoming: DataFrame, queue: DataFrame, folder: Path, given: dict[str, str]) -> Iterator[DataFrame]:
    for number, writer in enumerate(
        (incoming.writeStream.format("reliq").options(**given), queue.writeStream.format("noop"))
    ):
        query = (
            writer.option("checkpointLocation", str(folder / f"checkpoint-{number}")).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        print(query.lastProgress, query.status)
        query.explain(extended=True)
    yield queue


def show(spark: SparkSession, folder: Path, options: dict[str, str], url: str | None) -> None:
    folder.mkdir()
    reliq.spark.register(spark, url)
    for df in jobs(spark, folder, options):
        print(df._jdf.queryExecution().toString())
        for mode in EXPLAINED:
            with contextlib.suppress(Exception):  # not every mode knows streams
                df.explain(mode=mode)
    print(f"done: {folder.name}")


def pages(spark: SparkSession) -> Iterator[str]:
    ui, app = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    executions = json.loads(read(f"{ui}/api/v1/applications/{app}/sql?details=true&planDescription=true&length=1000"))
    assert len(executions) >= 9
    yield json.dumps(executions)
    for path in ("environment", "jobs", "stages"):
        yield read(f"{ui}/api/v1/applications/{app}/{path}")
    for path in ("environment", "jobs", "stages", "SQL", "StreamingQuery"):
        yield read(f"{ui}/{path}/")
    for execution in executions:
        yield read(f"{ui}/SQL/execution/?id={execution['id']}")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def main(folder: Path, url: str, reference: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        # Short jobs on few cores: compiling costs them more than it gains.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.ui.explainMode", "extended")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .getOrCreate()
    )
    show(spark, folder / "connection", {"connection": reference}, None)
    show(spark, folder / "url", {"url": url}, None)
    show(spark, folder / "register", {}, url)
    for page in pages(spark):
        print(page)
    spark.stop()
    print("all done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
