"""Names as users of Spark expect them: columns, options, headers, jobs of applications, sessions and threads."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from reliq.spark import register
from tests.integration.spark.test_batch_writer import claimed, write


def test_columns_are_found_in_any_case(spark, orders):
    write(spark.sql("SELECT 'x' AS VALUE, 'a' AS Id, 'k' AS KEY, map('h', '1') AS Headers"), keyAs="order")
    (message,) = claimed(orders)
    assert (message.id, message.body, message.key, message.headers) == ("a", b"x", "k", {"h": "1"})


def test_a_whole_row_keeps_the_case_of_its_names(spark, orders):
    write(spark.sql("SELECT 7L AS ID, 'eu' AS Region"))
    (message,) = claimed(orders)
    assert (message.id, message.json()) == ("7", {"ID": 7, "Region": "eu"})


def test_a_column_names_the_queue_in_any_case(spark, app, orders):
    spark.sql("SELECT 'x' AS Value, 'orders' AS Queue").write.format("reliq").mode("append").save()
    assert [message.body for message in claimed(orders)] == [b"x"]


def test_columns_of_the_reader_are_left_out_in_any_case(spark, orders):
    write(spark.sql("SELECT 'x' AS value, 'rejected' AS REASON, 3 AS Failures"))
    assert [message.body for message in claimed(orders)] == [b"x"]


@pytest.mark.parametrize(
    ("select", "sentence"),
    [
        ("SELECT 'x' AS value, 'a' AS id, 'b' AS ID", "columns `id` and `ID` are both the id of the message: drop one"),
        ("SELECT 'x' AS value, 'y' AS VALUE", "columns `value` and `VALUE` are both the body: drop one"),
        ("SELECT 1 AS a, 2 AS a", "two columns are called `a`"),
    ],
)
def test_columns_that_say_the_same_twice_are_refused(spark, app, select, sentence):
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(PySparkException, match=sentence):
            write(spark.sql(select))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert app.queues() == []


def test_options_and_their_words_may_have_any_case(spark, orders):
    rows = spark.sql("SELECT 'x' AS value, 'k' AS key, 'a' AS id")
    how = {"QUEUE": "orders", "KEYAS": "Order", "BODY": "VALUE", "columns": "KEY, Id"}
    rows.write.format("reliq").options(**how).mode("append").save()
    back = spark.read.format("reliq").options(Queue="orders", STATE="Ready").load()
    assert [row.id for row in back.collect()] == ["a"]
    assert [message.key for message in claimed(orders)] == ["k"]


def test_a_null_id_is_not_given(spark, orders):
    write(spark.createDataFrame([("a", "x"), (None, "y")], "id string, value string").coalesce(1), job="load")
    assert {message.id: message.body for message in claimed(orders)} == {"a": b"x", "load-0-1": b"y"}


def test_insert_needs_no_id_and_a_table_may_have_the_columns_of_a_write(spark, orders):
    try:
        spark.sql("CREATE TABLE orders USING reliq")
        spark.sql("INSERT INTO orders WITH (queue = 'orders') (value) VALUES (cast('x' AS binary))")
        spark.sql("CREATE TABLE inbox (value STRING, key STRING, delay_ms INT) USING reliq")
        spark.sql("INSERT INTO inbox WITH (queue = 'orders', keyAs = 'order') (value, key) VALUES ('y', 'k')")
    finally:
        for table in ("orders", "inbox"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
    assert {message.body: message.key for message in claimed(orders)} == {b"x": "", b"y": "k"}


TWICE = "array(named_struct('key', 'a', 'value', cast('1' AS binary)), named_struct('key', 'a', 'value', NULL))"


def test_a_header_that_is_given_twice_is_refused_or_kept_as_a_list(spark, orders):
    rows = spark.sql(f"SELECT 'x' AS value, {TWICE} AS headers")
    sentence = "header 'a' is given 2 times, and a message has each once.*repeatedHeaders.*list"
    with pytest.raises(PySparkException, match=sentence):
        write(rows)
    assert orders.stats().ready == 0
    write(rows, repeatedHeaders="list")
    assert [message.headers for message in claimed(orders)] == [{"a": '["1",""]'}]


def test_a_key_that_contradicts_the_header_key_is_not_lost(spark, orders):
    rows = "SELECT 'x' AS value, '{0}' AS key, map('key', 'eu') AS headers"
    with pytest.raises(PySparkException, match="header 'key' is given 2 times"):
        write(spark.sql(rows.format("us")), keyAs="header")
    write(spark.sql(rows.format("eu")), keyAs="header")
    assert [message.headers for message in claimed(orders)] == [{"key": "eu"}]


def test_a_job_of_several_queues_is_named_within_its_application(spark, app, orders):
    def load(**options: str) -> int:
        rows = spark.sql("SELECT 'x' AS value, 'orders' AS queue")
        rows.write.format("reliq").options(job="nightly", **options).mode("append").save()
        return orders.stats().ready

    assert load(application="shop") == 1
    assert load(application="shop") == 1
    assert load(application="the bank") == 2
    assert load() == 3  # the name of the Spark application
    assert load(application=spark.conf.get("spark.app.name")) == 3


# --- sessions and threads --------------------------------------------------------------------------------------------


def in_a_thread(work: Callable[[], Any]) -> Any:
    """Return what it returns, or its error, in a thread that has never used Spark."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def enqueue(session: SparkSession) -> None:
    write(session.sql("SELECT 'x' AS value"))


def test_register_is_for_the_thread_that_calls_it(spark, orders, url):
    def work() -> None:
        register(spark, url)
        enqueue(spark)

    assert in_a_thread(work) is None
    assert orders.stats().ready == 1


def test_a_new_session_has_the_format_and_may_be_registered_with_a_server_of_its_own(spark, orders, url):
    session = spark.newSession()
    try:
        write(session.sql("SELECT 'x' AS value"), url=url)
        read = session.read.format("reliq").options(queue="orders", url=url).load()
        assert read.where("id IS NOT NULL AND failures = 0").count() == 1
        with pytest.raises(PySparkException, match="no Redis server is named"):
            enqueue(session)
        register(session, url)
        enqueue(session)
    finally:
        register(spark, url)
    assert orders.stats().ready == 2


def test_a_session_that_is_not_registered_has_to_name_the_application_of_a_job(spark, orders, url):
    rows = spark.newSession().sql("SELECT 'x' AS value, 'orders' AS queue")
    with pytest.raises(PySparkException, match=r'name the application.*option\("application", "shop"\)'):
        rows.write.format("reliq").options(job="nightly", url=url).mode("append").save()
    rows.write.format("reliq").options(job="nightly", url=url, application="shop").mode("append").save()
    assert orders.stats().ready == 1
