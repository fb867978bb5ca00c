"""A client of Spark Connect that writes, reads and streams: `python connect_job.py URL FOLDER`; prints a summary."""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

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
    spark.stop()
    print("FOUND " + json.dumps({"read": read, "streamed": streamed, "refused": refused}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
