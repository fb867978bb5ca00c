"""What the profile `spark` of docker-compose.yml runs: a thousand rows become messages of the queue `orders`."""

from pyspark.sql import SparkSession

import reliq.spark

spark = SparkSession.builder.appName("reliq").getOrCreate()
reliq.spark.register(spark)
rows = spark.range(1000).selectExpr("to_json(struct(id AS order)) AS value")
rows.write.format("reliq").option("connection", "env:RELIQ_URL").option("queue", "orders").mode("append").save()
spark.stop()
