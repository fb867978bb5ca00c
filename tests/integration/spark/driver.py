"""Drivers to be killed: `python driver.py batch URL ROWS`, and `stream`, `sql` or `table` with URL and FOLDER."""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamWriter

from reliq.spark import register


def session(url: str, master: str = "local[2]") -> SparkSession:
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A driver that is killed soon: compiling costs more than it gains.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
        .config("spark.executor.memory", "512m")  # of a cluster
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark, url)
    return spark


def batch(url: str, rows: int) -> None:
    """Write the numbers below `rows`, under a name: the same job whenever it is run again."""
    df = session(url).range(0, rows, 1, 2).selectExpr("to_json(struct(id AS order)) AS value")
    df.write.format("reliq").options(queue="orders", job="load").mode("append").save()


def stream(url: str, folder: str) -> None:
    """Read the queue in micro-batches of 20, each into a file of its own, until it is empty.

    The file has of each row the task that has read it, and its number; `attempts` has these of each try of a batch.
    """

    def write(df, number: int) -> None:
        found = df.select(functions.spark_partition_id().alias("task"), "value").collect()
        rows = json.dumps([[row.task, json.loads(row.value)["order"]] for row in found])
        with (Path(folder) / "attempts").open("a") as attempts:
            attempts.write(f"[{number}, {rows}]\n")
        hidden = Path(folder) / f".{number}"
        hidden.write_text(rows)
        hidden.rename(Path(folder) / f"{number}.json")

    messages = session(url).readStream.format("reliq").options(queue="orders", maxMessagesPerBatch=20).load()
    run(messages.writeStream.foreachBatch(write), folder)


def sql(url: str, folder: str) -> None:
    """Read the queue as a table of SQL, with batches of 20, into files of Parquet, until it is empty."""
    spark = session(url)
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", 1000)
    spark.sql("CREATE TABLE orders USING reliq")
    messages = spark.sql("SELECT * FROM STREAM orders WITH (queue = 'orders', maxMessagesPerBatch = '20')")
    run(messages.writeStream.format("parquet").option("path", str(Path(folder) / "out")), folder)


def run(writer: DataStreamWriter, folder: str) -> None:
    writer = writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()


def table(url: str, folder: str) -> None:
    """Read the queue by the recipe of docs/how-to/spark.md until it is empty; the lease ends before the next start."""
    spark, out = session(url), Path(folder) / "out"

    def append_once(df, number: int) -> None:
        others = [str(path) for path in out.glob("batch=*") if path.name != f"batch={number}"]
        rows = df.select("id", "value")
        if others:
            written = df.sparkSession.read.schema("id string").parquet(*others)
            rows = rows.join(written, "id", "left_anti")
        rows.coalesce(1).write.mode("overwrite").parquet(str(out / f"batch={number}"))

    messages = spark.readStream.format("reliq").options(queue="orders", maxMessagesPerBatch=20, lease="2s").load()
    run(messages.writeStream.foreachBatch(append_once), folder)


if __name__ == "__main__":
    if sys.argv[1] == "batch":
        batch(sys.argv[2], int(sys.argv[3]))
    else:
        {"stream": stream, "sql": sql, "table": table}[sys.argv[1]](sys.argv[2], sys.argv[3])
