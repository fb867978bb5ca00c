"""SQL: temporary views, tables, INSERT, saveAsTable; each does its work or is refused with a sentence."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.integration.spark.test_batch_writer import claimed


@pytest.fixture
def sql(spark) -> Iterator:
    """Runs a statement; tables are dropped at the end."""
    yield spark.sql
    for table in ("orders", "copies"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        shutil.rmtree(Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / table, ignore_errors=True)


def test_views_of_ready_delayed_and_dead_messages(sql, orders):
    orders.send("now", id="a")
    orders.send("later", id="b", delay="1h")
    orders.send("bad", id="c")
    with orders.consumer() as consumer:
        ready = consumer.claim(2)
        consumer.dead(ready[1], "no luck")
        consumer.release(ready[0])
    for state, identity in (("ready", "a"), ("delayed", "b"), ("dead", "c")):
        sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING reliq OPTIONS (queue 'orders', state '{state}')")
        assert [row.id for row in sql("SELECT id FROM messages WHERE id IN ('a', 'b', 'c')").collect()] == [identity]
    sql("DROP VIEW messages")


def test_a_table_takes_its_options_with_each_statement(sql, orders):
    sql("CREATE TABLE orders USING reliq")
    sql("INSERT INTO orders WITH (queue = 'orders') (id, value) VALUES ('a', cast('x' AS binary)), ('b', binary('y'))")
    assert sql("SELECT count(*) AS n FROM orders WITH (queue = 'orders')").first().n == 2
    assert {message.id: message.body for message in claimed(orders)} == {"a": b"x", "b": b"y"}


def test_a_table_whose_options_spark_drops_is_refused_with_what_works(sql):
    sql("CREATE TABLE orders USING reliq OPTIONS (queue 'orders')")
    with pytest.raises(PySparkException, match=r"name the queue.* FROM my_table WITH \(queue = 'orders'\)") as error:
        sql("SELECT * FROM orders").collect()
    assert "name the queue" in str(error.value).partition("\n")[0]


def test_insert_overwrite_is_refused(sql, orders):
    orders.send("before")
    sql("CREATE TABLE orders USING reliq")
    with pytest.raises(PySparkException, match="use append"):
        sql("INSERT OVERWRITE orders WITH (queue = 'orders') (id, value) VALUES ('a', cast('x' AS binary))")
    assert orders.stats().ready == 1


def test_save_as_table_and_write_to(spark, sql, orders):
    rows = spark.range(3).selectExpr("id", "'x' AS note")
    rows.write.format("reliq").option("queue", "orders").mode("append").saveAsTable("copies")
    assert sorted(message.json()["id"] for message in claimed(orders)) == [0, 1, 2]
    sql("CREATE TABLE orders USING reliq")
    values = spark.range(3).selectExpr("cast(id AS string) AS id", "cast('x' AS binary) AS value")
    values.writeTo("orders").option("queue", "orders").append()
    assert sorted(message.id for message in claimed(orders)) == ["0", "1", "2"]
