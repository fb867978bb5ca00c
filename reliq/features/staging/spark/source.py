"""What the data source "reliq" has for writing."""

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from reliq.spark.options import Given
from reliq.spark.workers import in_worker


class StagedWrites:
    """Writes a DataFrame, or each micro-batch of a stream, as a staged job."""

    _given: Given

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from reliq.features.staging.spark.writer import ReliqWriter

        with in_worker():
            return ReliqWriter(self._given.for_writing(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        from reliq.features.staging.spark.stream_writer import ReliqStreamWriter

        with in_worker():
            return ReliqStreamWriter(self._given.for_writing(), schema, overwrite)
