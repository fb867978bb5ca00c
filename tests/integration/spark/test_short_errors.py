"""What a user sees of an error is its sentence, not the traceback of a Python worker."""

import os
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows

from reliq.errors import RedisUnavailable
from reliq.features.staging.spark.stream_writer import ReliqStreamWriter
from reliq.features.staging.spark.writer import ReliqWriter
from reliq.features.staging.spark.written import Staged
from reliq.spark.options import Connection, Given
from tests.integration.spark.test_durable_jobs import ROWS
from tests.integration.spark.test_streams import folders, from_reliq

__all__ = ["folders"]  # a fixture

AWAY = "redis://127.0.0.1:1/0"


def check_short(refused: pytest.ExceptionInfo[PySparkException], sentence: str) -> None:
    assert sentence in str(refused.value)
    assert "Traceback" not in str(refused.value)


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"maxMessages": "5"}, "there is no option 'maxmessages' here"),
        ({"url": AWAY}, "127.0.0.1:1/0 cannot be reached"),
    ],
)
def test_a_stream_that_cannot_be_read_ends_with_a_sentence(spark, folders, options, sentence, trigger):
    checkpoint = str(folders / "checkpoint")
    writer = from_reliq(spark, **options).writeStream.foreachBatch(lambda df, number: None)
    with pytest.raises(PySparkException) as refused:
        writer.option("checkpointLocation", checkpoint).trigger(**trigger).start().awaitTermination(300)
    check_short(refused, sentence)


def test_a_read_that_cannot_be_planned_ends_with_a_sentence(spark):
    with pytest.raises(PySparkException) as refused:
        spark.read.format("reliq").options(queue="orders", url=AWAY).load().count()
    check_short(refused, "127.0.0.1:1/0 cannot be reached")


class AwayNow:
    def run(self, *_):
        raise RedisUnavailable("away")


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.latestOffset({"stream": "s", "batch": 0, "messages": 0}, ReadMaxRows(1)),
        lambda reader: reader.partitions({"stream": "s", "batch": 1}, {"stream": "s", "batch": 2, "messages": 1}),
        lambda reader: reader.commit({"stream": "s", "batch": 1}),
        lambda reader: reader.prepareForTriggerAvailableNow(),
        lambda reader: reader.reportLatestOffset(),
    ],
)
def test_whatever_spark_asks_a_stream_that_has_lost_redis_the_traceback_is_hidden(monkeypatch, call):
    streams = pytest.importorskip("reliq.spark.stream_reader", reason="needs PySpark 4.2", exc_type=ImportError)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    reader = streams.ReliqStreamReader(Given({"queue": "orders"}, AWAY).for_streaming())
    reader._store_ = AwayNow()
    with pytest.raises(RedisUnavailable):
        call(reader)
    assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"


@pytest.mark.parametrize(("kind", "more"), [(ReliqWriter, ()), (ReliqStreamWriter, (0,))])
def test_an_abort_without_redis_hides_no_error_for_which_it_is(url, caplog, kind, more):
    """Spark shows an error of an abort in place of the task's, as `Writing job failed` above 150 lines."""
    writer = kind(Given({"queue": "orders"}, url).for_writing(), ROWS, overwrite=False)
    writer._options = replace(writer._options, connection=Connection(AWAY))
    writer.abort([Staged("load", "run")], *more)
    assert "is not aborted, a monitor deletes its rows after its timeLimit: Redis at" in caplog.text
