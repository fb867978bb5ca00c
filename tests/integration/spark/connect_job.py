"""A client of Spark Connect that writes, reads and streams: `python connect_job.py URL FOLDER`; prints a summary."""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reliq.errors import InvalidSetting
from reliq.spark import register


def main(url: str, folder: str) -> None:
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    register(spark, url)
    spark.range(30).write.format("reliq").option("queue", "orders").mode("append").save()
    read = spark.read.format("reliq").option("queue", "orders").load().count()
    messages = spark.readStream.format("reliq").option("queue", "orders").load()
    sink = messages.selectExpr("id", "cast(value AS string) AS value").writeStream.format("parquet")
    sink = sink.option("path", str(Path(folder) / "out")).option("checkpointLocation", str(Path(folder) / "checkpoint"))
    sink.trigger(availableNow=True).start().awaitTermination()
    streamed = spark.read.parquet(str(Path(folder) / "out")).count()
    try:
        spark.sql("SELECT NULL AS value").write.format("reliq").option("queue", "orders").mode("append").save()
        refused = ""
    except PySparkException as error:
        refused = str(error).partition("\n")[0]
    written = [append_once(spark, Path(folder)), enqueue_once(spark, Path(folder))]
    spark.conf.set("spark.reliq.secret.url", url)
    try:
        register(spark)
        withheld = ""
    except InvalidSetting as error:
        withheld = str(error)
    spark.stop()
    found = {"read": read, "streamed": streamed, "refused": refused, "written": written, "withheld": withheld}
    print("FOUND " + json.dumps(found))


def append_once(spark: SparkSession, folder: Path) -> int:
    """Run the recipe of docs/how-to/spark.md, in three batches; return how many messages it has written."""
    spark.range(10).write.format("reliq").option("queue", "lake").mode("append").save()
    out = folder / "lake"

    def append_once(df, number: int) -> None:
        others = [str(path) for path in out.glob("batch=*") if path.name != f"batch={number}"]
        rows = df.select("id", "value")
        if others:
            rows = rows.join(df.sparkSession.read.schema("id string").parquet(*others), "id", "left_anti")
        rows.coalesce(1).write.mode("overwrite").parquet(str(out / f"batch={number}"))

    messages = spark.readStream.format("reliq").options(queue="lake", maxMessagesPerBatch=4).load()
    run(messages.writeStream.foreachBatch(append_once), folder / "of-lake")
    return spark.read.parquet(str(out / "*")).count()


def enqueue_once(spark: SparkSession, folder: Path) -> int:
    """Write in foreachBatch, as a version of an application that has a name."""

    def enqueue(df, number: int) -> None:
        import reliq.spark

        once = reliq.spark.transaction(df, number, "nightly")
        for _ in range(2):
            df.write.format("reliq").option("queue", "versions").options(**once).mode("append").save()

    rows = spark.readStream.schema("id string, value string").parquet(str(folder / "out"))
    run(rows.writeStream.foreachBatch(enqueue), folder / "of-versions")
    return spark.read.format("reliq").option("queue", "versions").load().count()


def run(writer, checkpoint: Path) -> None:
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
