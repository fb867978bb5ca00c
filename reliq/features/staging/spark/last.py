"""The result of a session's latest write. This module needs no PySpark, as little as `import reliq.spark` does."""

from contextlib import closing
from typing import TYPE_CHECKING

from reliq.errors import InvalidSetting
from reliq.spark.known import SESSION, servers
from reliq.spark.options import Given

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reliq.features.staging.spark.results import WriteResult


def last_write(spark: "SparkSession", url: str | None = None) -> "WriteResult | None":
    """Return what the latest write of this session has done; None before the first one, and seven days after it.

    `url`: the server, or a reference to it, of a write that had another one than the session. With writes in several
    threads it is the one that was committed last.
    """
    from reliq.features.staging.spark.results import latest

    session = spark.conf.get(SESSION, None)
    if session is None or session not in servers:
        raise InvalidSetting("this session has no name to find its writes by: call reliq.spark.register(spark) first")
    given = Given({"url": url}, None) if url else servers[session]
    with closing(given.connection().store()) as store:
        return store.run(latest(session))
