"""A trace goes through Spark: the driver's span, by options of the job, or each row's own, in the column `headers`."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from pyspark.errors import PySparkException
from pyspark.sql import functions as sql

from reliq import otel
from tests.support.workers import eventually

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def claimed(queue):
    with queue.consumer() as consumer:
        messages = consumer.claim(100)
        consumer.ack(*messages)
    return messages


@pytest.fixture
def job():
    """The span of a driver, as an application has set it up."""
    provider = TracerProvider()
    with provider.get_tracer("test").start_as_current_span("a job") as span:
        yield span
    provider.shutdown()


def write(df, **options):
    df.write.format("reliq").options(queue="orders", **options).mode("append").save()


def test_all_rows_of_a_job_carry_the_span_of_its_driver(spark, orders, job):
    write(spark.range(3).selectExpr("string(id) AS value"), **otel.context())
    assert f"-{job.get_span_context().span_id:016x}-" in otel.context()["traceparent"]
    assert [message.headers for message in claimed(orders)] == [otel.context()] * 3


def test_a_rows_own_headers_go_before_those_of_the_job(spark, orders, job):
    rows = spark.range(2).select(
        sql.col("id").cast("string").alias("value"),
        sql.when(sql.col("id") == 0, sql.create_map(sql.lit("traceparent"), sql.lit(PARENT)))
        .otherwise(sql.create_map(sql.lit("mine"), sql.lit("kept")))
        .alias("headers"),
    )
    write(rows, **otel.context())
    headers = {message.body: message.headers for message in claimed(orders)}
    assert headers[b"0"] == {"traceparent": PARENT}
    assert headers[b"1"] == {"mine": "kept", **otel.context()}


def test_the_run_of_a_message_of_a_job_has_the_driver_as_its_parent(spark, orders, job):
    write(spark.range(1).selectExpr("string(id) AS value"), **otel.context())
    (message,) = claimed(orders)
    provider = TracerProvider()
    otel.instrument(provider)
    try:
        with otel.processing(message) as span:
            assert isinstance(span, ReadableSpan)
            assert span.parent is not None
            assert span.parent.span_id == job.get_span_context().span_id
            assert [link.context.span_id for link in span.links] == [job.get_span_context().span_id]
    finally:
        otel.uninstrument()
        provider.shutdown()


def test_a_stream_carries_it_too(spark, orders, job, tmp_path):
    source = tmp_path / "in"
    spark.range(2).selectExpr("string(id) AS value").write.text(str(source))
    stream = spark.readStream.text(str(source)).writeStream.format("reliq").options(queue="orders", **otel.context())
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(60)
    eventually(lambda: orders.stats().ready == 2)
    assert [message.headers for message in claimed(orders)] == [otel.context()] * 2


@pytest.mark.parametrize("wrong", [{"traceparent": "00-1-2-01"}, {"tracestate": "a=1"}])
def test_what_leads_to_no_span_is_refused(spark, orders, wrong):
    with pytest.raises(PySparkException, match="option traceparent is not valid"):
        write(spark.range(1).selectExpr("string(id) AS value"), **wrong)
    assert orders.stats().ready == 0


def test_nothing_is_written_where_nothing_is_traced(spark, orders):
    assert otel.context() == {}
    write(spark.range(1).selectExpr("string(id) AS value"), **otel.context())
    assert [message.headers for message in claimed(orders)] == [{}]
