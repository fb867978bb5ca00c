"""A nightly job: Spark writes a letter for each customer, workers write them, and one message says when all is done.

    python examples/nightly_letters.py [ROWS]

Needs Java 17 or newer and the extra `spark`. The default is 2,000 rows; try 10,000,000. The job has a name, so that the
scheduler may run it again: then it adds nothing, and nothing is told twice.
"""

import os
import sys

from pyspark.sql import SparkSession

import reliq
import reliq.spark
from reliq.embedded import EmbeddedRedis

from running import command, wait_for  # isort: skip

JOB = "letters-2026-11-20"
app = reliq.Reliq()


@app.handler("letters")
def write(message: reliq.Message) -> None:
    if not message.json()["name"].startswith("customer-"):
        raise reliq.Dead("not a customer")


@app.handler("reports")
def report(message: reliq.Message) -> None:
    handled, dead = (message.headers[f"batch-{name}"] for name in ("handled", "dead"))
    print(f"{message.json()['job']}: {handled} letters written, {dead} dead", flush=True)


def main(rows: int) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # also without an activated environment
    with EmbeddedRedis() as redis, reliq.Reliq(redis.url) as here:
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        reliq.spark.register(spark, redis.url)
        customers = spark.range(0, rows, 1, 4).selectExpr("id", "concat('customer-', id) AS name")
        nightly = {"queue": "letters", "job": JOB, "onHandled": "reports"}
        for _ in range(2):  # the scheduler runs it again
            customers.write.format("reliq").options(**nightly).mode("append").save()
            result = reliq.spark.last_write(spark)
            assert result is not None
            print(f"{result.messages} messages added, committed before: {result.committed_before}", flush=True)
        spark.stop()
        with (
            command("monitor", "--quiet", url=redis.url),
            command("worker", "nightly_letters:app", "--processes", "2", "--quiet", url=redis.url),
        ):
            reports = here.queue("reports")
            wait_for(lambda: reports.stats().counters.get("acked"), seconds=60 + rows / 1000)
        acked = here.queue("letters").stats().counters["acked"]
    print(f"{acked} of {rows} letters")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
