"""The cast that a refused column's error advises is one that helps: it is run here, and its rows are written."""

import re

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from reliq.errors import InvalidSetting
from reliq.spark.write_columns import write_columns_of
from tests.integration.spark.test_batch_writer import claimed, write


def refusal_of(df) -> str:
    with pytest.raises(InvalidSetting) as refused:
        write_columns_of(df.schema, None, None, "orders")
    return str(refused.value)


@pytest.mark.parametrize(
    ("column", "body"),
    [
        ("interval '1' day", "INTERVAL '1' DAY"),
        ("make_interval(0, 1, 0, 2)", "1 months 2 days"),
        ("time'10:11:12'", "10:11:12"),
        ("array(interval '1' day)", ["INTERVAL '1' DAY"]),
        ("array(struct(1.50 AS n, interval '1' day AS `a b`))", [{"n": 1.5, "a b": "INTERVAL '1' DAY"}]),
        ("struct(interval '1' day AS d, 'x' AS `t``s`)", {"d": "INTERVAL '1' DAY", "t`s": "x"}),
        ("map('a', interval '1' day)", {"a": "INTERVAL '1' DAY"}),
        ("map(date'2026-11-28', array(NULL))", {"2026-11-28": [None]}),
        ("st_geomfromwkb(x'0101000000000000000000F03F0000000000000040')", "AQEAAAAAAAAAAADwPwAAAAAAAABA"),
    ],
)
def test_a_column_without_a_json_form_is_written_with_the_advised_cast(spark, orders, column, body):
    try:
        df = spark.sql(f"SELECT {column} AS x")
    except PySparkException:
        pytest.skip("this Spark does not know the type")
    advice = refusal_of(df).partition(" no JSON form: ")[2]
    write(df.withColumn("x", sql.expr(advice)))
    assert claimed(orders)[0].json() == {"x": body}


def test_where_no_cast_helps_none_is_advised(spark):
    try:
        df = spark.sql("SELECT array(st_geomfromwkb(x'0101000000000000000000F03F0000000000000040')) AS x")
    except PySparkException:
        pytest.skip("this Spark does not know the type")
    assert re.fullmatch(r"column `x\[\]` is geometry\(0\), which has no JSON form: leave it out", refusal_of(df))


@pytest.mark.parametrize(
    "column", ["array(struct('a' AS key, 1 AS value))", "array(struct(2 AS key, x'31' AS value))", "map('a', 1)"]
)
def test_headers_that_are_no_texts_are_refused_on_the_driver_with_a_cast_that_helps(spark, orders, column):
    df = spark.sql(f"SELECT 'x' AS value, {column} AS headers")
    with pytest.raises(PySparkException, match=r"column `headers` is .*: cast\(`headers` AS ") as refused:
        write(df, invalid="skip")
    (advice,) = re.findall(r"cast\(`headers` AS [^)]*\)", str(refused.value))
    write(df.withColumn("headers", sql.expr(advice)))
    assert list(claimed(orders)[0].headers.values()) == ["1"]


def test_headers_that_no_cast_makes_texts_are_refused_without_one(spark):
    refusal = refusal_of(spark.sql("SELECT 'x' AS value, array('a') AS headers"))
    assert refusal.endswith("it must be map<string,string> or array<struct<key:string,value:binary>>")


def test_an_option_of_the_message_that_is_void_is_not_given(spark, orders):
    names = ("id", "key", "headers", "priority", "delay_ms", "ttl_ms", "dedup_key")
    df = spark.range(2).select(sql.lit("x").alias("value"), *(sql.lit(None).alias(name) for name in names))
    write(df)
    messages = claimed(orders)
    assert [(one.body, one.key, one.headers, one.priority) for one in messages] == [(b"x", "", {}, "normal")] * 2
    write(df.drop("value").withColumn("n", sql.lit(1)), columns="id,key")
    assert [one.json() for one in claimed(orders)] == [{"n": 1}] * 2
