"""The clock of an executor decides nothing; without a JVM."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from reliq import ops
from reliq.features.staging.spark import writer
from reliq.spark.encoding import CLOCK
from tests.integration.spark.test_durable_jobs import options

ROWS = StructType([StructField("value", StringType()), StructField("ttl_ms", LongType())])


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_time_to_live_counts_from_the_staging_by_the_clock_of_redis(app, monkeypatch, hours):
    now = app.store.call(ops.server_time())
    monkeypatch.setattr("reliq.protocol.clock.this_machines_ms", lambda: now + hours * 3_600_000)
    monkeypatch.setattr(CLOCK, "known", False)
    monkeypatch.setattr(writer, "task", lambda: SimpleNamespace(partitionId=lambda: 0))
    job = writer.ReliqWriter(options(app.url), ROWS, overwrite=False)
    job.commit([job.write(iter([pa.RecordBatch.from_pydict({"value": ["x"], "ttl_ms": [3_600_000]})]))])
    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
    assert 3_500_000 < message.expires_at - now <= 3_660_000
    assert abs(message.enqueued_at - now) < 60_000
