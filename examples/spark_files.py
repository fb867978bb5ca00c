"""A Spark batch over real files: each file of Python's standard library becomes a message; workers count its lines.

    python examples/spark_files.py

Needs Java 17 or newer and the extra `spark`. The job writes all messages or none. The counts of the workers are
compared with a count without the queue.
"""

import os
import sys
import sysconfig
from pathlib import Path

from pyspark.sql import SparkSession

import reliq
import reliq.spark
from reliq.embedded import EmbeddedRedis

from running import command, wait_for  # isort: skip

app = reliq.Reliq()
LIBRARY = Path(sysconfig.get_paths()["stdlib"])


@app.handler("files", once=True)
def count_lines(message: reliq.Message) -> None:
    path = message.json()["path"].removeprefix("file:")
    app.queue("lines").send({"path": path, "lines": len(Path(path).read_bytes().splitlines())})


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # also without an activated environment
    with EmbeddedRedis() as redis, reliq.Reliq(redis.url) as here:
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        reliq.spark.register(spark)
        files = spark.read.format("binaryFile").option("pathGlobFilter", "*.py").load(str(LIBRARY))
        files.selectExpr("path", "length").write.format("reliq").option("url", redis.url).option("queue", "files").mode(
            "append"
        ).save()
        sent = here.queue("files").stats().ready
        spark.stop()
        print(f"{sent} files of {LIBRARY} sent by a Spark job")

        with command("worker", "spark_files:app", "--processes", "2", "--quiet", url=redis.url):
            wait_for(lambda: here.queue("files").stats().counters.get("acked") == sent)
        counted = 0
        with here.queue("lines").consumer() as consumer:
            while messages := consumer.claim(limit=500):
                counted += sum(message.json()["lines"] for message in messages)
                consumer.ack(*messages)
    # Spark leaves out files whose names begin with an underscore.
    directly = sum(len(path.read_bytes().splitlines()) for path in LIBRARY.glob("[!_]*.py"))
    print(f"lines counted by the workers {counted:,}, without the queue {directly:,}")
    if counted != directly:
        sys.exit("they differ")


if __name__ == "__main__":
    main()
