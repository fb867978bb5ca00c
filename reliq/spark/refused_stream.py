"""A stream that cannot be read as its options say."""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from reliq.errors import ReliqError
from reliq.spark.workers import in_worker


class RefusedStream(DataSourceStreamReader):
    """Ends the query with the error, whatever Spark asks first.

    Spark shows an error of `streamReader` itself as "cannot access local variable 'reader'".
    """

    def __init__(self, error: ReliqError) -> None:
        self._error = error

    @in_worker()
    def initialOffset(self) -> NoReturn:  # noqa: N802  Spark's name
        raise self._error

    @in_worker()
    def latestOffset(self, *_: Any) -> NoReturn:  # noqa: N802  Spark's name
        raise self._error

    @in_worker()
    def partitions(self, *_: Any) -> NoReturn:
        raise self._error

    @in_worker()
    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error
