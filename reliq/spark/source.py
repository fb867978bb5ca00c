"""The data source that Spark knows as "reliq"."""

from collections.abc import Mapping, MutableMapping
from typing import ClassVar

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from reliq.errors import InvalidSetting, ReliqError
from reliq.features.staging.spark.source import StagedWrites
from reliq.spark.columns import SCHEMA, check_user_schema
from reliq.spark.options import Given
from reliq.spark.workers import in_worker


class _Messages(DataSource):
    """Reads messages."""

    _given: Given

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from reliq.spark.reader import ReliqReader

        with in_worker():
            check_user_schema(schema)
            return ReliqReader(self._given.for_reading())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        if not hasattr(DataSourceStreamReader, "getDefaultReadLimit"):  # before 4.2, the read limit is unknown
            needs = f"reading a queue as a stream needs PySpark 4.2 or newer, this is {pyspark.__version__}"
            raise InvalidSetting(f"{needs}; all else works")
        from reliq.spark.refused_stream import RefusedStream
        from reliq.spark.stream_reader import ReliqStreamReader

        try:
            check_user_schema(schema)
            return ReliqStreamReader(self._given.for_streaming())
        except ReliqError as error:
            return RefusedStream(error)


class ReliqDataSource(StagedWrites, _Messages):
    """Messages of a Redis server's queues. Everything it is given is checked here, on the driver.

    Options: `queue`; `connection`, where the URL of the Redis server is: `env:NAME`, `file:/path` or `conf:NAME`, read
    on the driver (`url`, the URL itself, is for one without a password); `allowEviction`.

    Write: columns `value`, and if you like `id`, `key`, `headers`, `delay_ms`; without the option `queue` also `queue`
    or `topic`, which say where each row goes. `job`: a name under which the same rows are never written twice.
    `timeLimit`: of a job that died. `maxBody`. `mandatory`: a topic that no queue is bound for fails the job.

    Read: `jobs`: what jobs have written, else messages: `state` (ready | delayed | dead), `numPartitions`. Consumes
    nothing.

    Read as a stream: `maxMessagesPerBatch`, `lease`, `numPartitions`. Consumes: what a micro-batch has read is acked
    once Spark has committed it.
    """

    default_url: ClassVar[str | None] = None
    conf: ClassVar[Mapping[str, str]] = {}  #: the session's settings of reliq, as `register` found them
    session: ClassVar[str] = ""  #: the name that `register` has given the session
    environment: ClassVar[Mapping[str, str]] = {}  #: the variables of reliq in the process that called `register`

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = Given(dict(options), self.default_url, self.conf, self.environment, self.session)

    @classmethod
    def name(cls) -> str:
        return "reliq"
