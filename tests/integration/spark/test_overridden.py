"""A column `queue` beside the option queue: the option is for all rows, and the driver says so."""

import logging

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, StringType, StructField, StructType

from reliq.features.staging.spark.writer import check_write, commit
from reliq.features.staging.spark.written import Staged
from reliq.features.staging.steps import Job, open_job
from reliq.model.keys import QueueKeys
from reliq.spark.options import Given
from reliq.spark.overridden import Overridden, overridden_in
from tests.integration.spark.test_texts_and_times import TEXT, rows_of, texts


def options(url: str, **more: str):
    return Given({"QUEUE": "orders", "url": url, **more}, None).for_writing()


def layout(url: str, *names: str, **more: str):
    schema = StructType([StructField(name, StringType()) for name in names])
    return check_write(options(url, **more), schema, overwrite=False)[0]


def test_the_option_is_for_all_rows(spark, app, orders):
    rows = spark.sql("SELECT 'x' AS value, 'mail' AS Queue UNION ALL SELECT 'y', 'orders' UNION ALL SELECT 'z', NULL")
    rows.write.format("reliq").option("QUEUE", "orders").mode("append").save()
    assert (app.queues(), orders.stats().ready) == (["orders"], 3)


def test_an_insert_with_the_option_is_for_its_queue(spark, app, orders):
    spark.sql("CREATE TABLE inbox (value STRING, QUEUE STRING) USING reliq")
    try:
        spark.sql("INSERT INTO inbox WITH (queue = 'orders') VALUES ('x', 'mail'), ('y', 'orders')")
        assert (app.queues(), orders.stats().ready) == (["orders"], 2)
        with pytest.raises(PySparkException, match="column `queue` routes the rows to queues, option queue names one"):
            spark.sql("INSERT INTO inbox WITH (queue = 'orders', columns = 'Queue') VALUES ('x', 'mail')")
    finally:
        spark.sql("DROP TABLE inbox")
    assert orders.stats().ready == 2


@pytest.mark.parametrize("body", ["value", "order"])
def test_tasks_count_the_rows_that_name_another_queue(body):
    columns: dict[str, tuple[DataType, pa.Array]] = {
        body: (TEXT, texts(*[b"x"] * 5)),
        "Queue": (TEXT, texts(b"mail", b"q", None, b"\xff", b"mail")),
    }
    rows, batch = rows_of(columns, "skip")
    for _ in range(2):
        list(rows.chunks(batch))
    assert rows.overridden == Overridden(6, "mail")


def test_rows_that_name_the_queue_of_the_option_or_none_are_not_counted():
    assert overridden_in(pa.array(["q", None, "q"]), "q") == Overridden()
    assert overridden_in(texts(b"\xff"), "q") == Overridden(1, "�")


def test_a_column_that_is_declared_data_is_not_looked_at(url):
    assert layout(url, "value", "QUEUE").overridden == 1
    assert layout(url, "order", "QUEUE").overridden == 1
    assert layout(url, "order", "QUEUE", columns="").overridden is None
    assert layout(url, "value", "queue", columns="").overridden is None
    assert layout(url, "value").overridden is None


def test_the_driver_logs_how_many_rows_went_to_the_queue_of_the_option(app, caplog):
    job = Job(QueueKeys("orders"), "load")
    app.store.run(open_job(job))
    found = (Overridden(), Overridden(2, "mail"), Overridden(3, "b"))
    every = [Staged("load", job.run, overridden=one) for one in found]
    with caplog.at_level(logging.WARNING, "reliq.spark"):
        commit(app.store, job, every, options(app.url))
    assert "column `queue` of 5 rows names another queue, such as 'mail'" in caplog.text
    assert "they went to orders. Leave the option out" in caplog.text
