"""A job for a cluster whose workers have only what is sent with it; prints what its tasks have seen, as JSON."""

import json
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

import reliq.spark

ROWS = 4000


def main() -> None:
    def seen(batches: Iterable) -> Iterator:
        """The Python of each task, and where it has reliq from; named here, so that it is sent by value."""
        import sys

        import pyarrow as pa

        import reliq

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.prefix], "reliq": [reliq.__file__]})

    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    reliq.spark.register(spark)
    orders = spark.range(0, ROWS, 1, 4)
    found = orders.mapInArrow(seen, "python string, reliq string").distinct().collect()
    orders.write.format("reliq").options(queue="orders", job="load").mode("append").save()
    count = spark.read.format("reliq").option("queue", "orders").load().count()
    print(json.dumps({"tasks": [row.asDict() for row in found], "count": count}))
    spark.stop()


if __name__ == "__main__":
    main()
