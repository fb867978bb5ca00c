"""A queue into a table, the ids in the table into another queue, and the dead letters as a view of one run."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import reliq.spark

spark = SparkSession.active()
reliq.spark.register(spark)


@dp.table
def orders():
    return spark.readStream.format("reliq").option("queue", "orders").load()


@dp.materialized_view
def dead():
    return spark.read.format("reliq").options(queue="orders", state="dead").load().where("reason = 'rejected'")


dp.create_sink("shipping", "reliq", {"queue": "shipping"})


@dp.append_flow(target="shipping")
def shipped():
    return spark.readStream.table("orders").select("id", "value")
