"""What the data source "reliq" has for writing, and for reading what was written."""

from typing import cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from reliq.spark.options import Given
from reliq.spark.workers import in_worker


class StagedWrites(DataSource):
    """Writes a DataFrame, or each micro-batch of a stream, as a staged job; reads the jobs."""

    _given: Given

    def schema(self) -> StructType:
        if not self._given.asks_for_jobs:
            return cast("StructType", super().schema())
        from reliq.features.staging.spark.results import SCHEMA

        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        if not self._given.asks_for_jobs:
            return super().reader(schema)
        from reliq.features.staging.spark.results import JobsReader

        with in_worker():
            return JobsReader(self._given.for_jobs())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from reliq.features.staging.spark.writer import ReliqWriter

        with in_worker():
            return ReliqWriter(self._given.for_writing(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        from reliq.features.staging.spark.stream_writer import ReliqStreamWriter

        with in_worker():
            return ReliqStreamWriter(self._given.for_writing(), schema, overwrite)
