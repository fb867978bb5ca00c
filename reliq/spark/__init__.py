"""reliq for Spark: `reliq.spark.register(spark)`, then the format "reliq" for read, write, readStream, writeStream."""

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reliq.errors import InvalidSetting
from reliq.extras import install_command
from reliq.features.staging.spark.last import last_write
from reliq.spark.known import SESSION, servers
from reliq.spark.options import Given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OLDEST = (4, 1)
_URL = "spark.reliq.secret.url"
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH = str(4 * 1024 * 1024)  #: bytes; Spark's default is 10,000 rows of any size, which a task has in memory twice

__all__ = ["check_pyspark", "last_write", "register", "transaction"]


def register(spark: "SparkSession", url: str | None = None) -> None:
    """Teach a Spark session the format "reliq", in the calling thread.

    Every session has the format anyway, by the package `pyspark_reliq`, with the server of RELIQ_URL or of the option
    `connection`. Spark looks it up in the session that is active in a thread, and a thread that your program starts has
    none: a pool may have `initializer=register, initargs=(spark,)`.

    `url`: the Redis server of reads and writes that name none; else `spark.reliq.secret.url` of the session, else
    RELIQ_URL; without any of them such a read or write is refused. It may be a reference: `env:NAME`, `file:/path`.
    Given here it is no option of a DataFrame, so that no plan, log or page of Spark ever has it. Reads and writes use
    the settings `spark.reliq.*` and the environment variables `RELIQ_*` as they are now: register again after a change.
    Also limits Arrow batches to 4 MiB unless the session has a limit of its own; in a declarative pipeline, which
    refuses settings here, its specification has to. With a master `local[...]` Spark runs the tasks of this program in
    its Python from now on, unless PYSPARK_PYTHON names another.
    Raises InvalidSetting where PySpark is missing or too old.
    """
    check_pyspark()
    from reliq.spark.source import ReliqDataSource

    given_conf = spark.conf.getAll
    conf = {
        name: value
        for name, value in given_conf.items()
        if name.startswith("spark.reliq.") or name == "spark.app.name"  # the default of the option `application`
    }
    url = url or conf.get(_URL)
    if not url:
        _check_withheld(spark)
    # Planners have the environment that the first of them was started with: before a notebook has set its variables.
    environment = {
        name: value for name, value in os.environ.items() if name.startswith("RELIQ_") or url == f"env:{name}"
    }
    session = spark.conf.get(SESSION, None) or secrets.token_hex(8)
    settings = {_BATCH_BYTES: given_conf.get(_BATCH_BYTES, _BATCH), SESSION: session}
    _configure(spark, settings)
    _choose_python(spark)
    servers[session] = Given({}, url, conf, environment)
    given = {"default_url": url, "conf": conf, "environment": environment, "session": session}
    # A class of its own, so that Spark sends it to its planners by value, with the URL in it.
    source = type("RegisteredDataSource", (ReliqDataSource,), {**given, "__module__": "__main__"})
    spark.dataSource.register(source)
    spark.createDataFrame([], "none int")  # makes the session the active one of this thread


def transaction(df: "DataFrame", batch_id: int, application: str | None = None) -> dict[str, str]:
    """Return the options with which a write in `foreachBatch` is made once, however often Spark replays the batch.

    `df`, `batch_id`: what Spark gives the function. `application`: by default the id of the query, which its checkpoint
    keeps: a query with a new checkpoint is a new application.
    """
    if application is None:
        from pyspark.errors import PySparkException

        with suppress(PySparkException):  # Spark Connect has no context
            application = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not application:
            raise InvalidSetting(
                "no streaming query is known here: transaction is for foreachBatch; with Spark Connect name the "
                "application, and change the name together with the checkpoint"
            )
    return {"txnAppId": application, "txnVersion": str(batch_id)}


def _configure(spark: "SparkSession", settings: Mapping[str, str]) -> None:
    from pyspark.errors import PySparkException

    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
    except PySparkException as error:
        if not (error.getCondition() or "").startswith("SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"):
            raise


def _check_withheld(spark: "SparkSession") -> None:
    """Raise InvalidSetting if the session has a URL that Spark Connect withholds, rather than use that of RELIQ_URL."""
    if getattr(spark, "_sc", None) is not None:
        return
    from pyspark.errors import PySparkException

    names: list[str] = []
    with suppress(PySparkException):  # a declarative pipeline has no SET
        names = [row.key for row in spark.sql("SET").collect()]
    if _URL in names:
        raise InvalidSetting(
            f"Spark Connect does not hand out {_URL}: give the URL to reliq.spark.register(spark, url), which may be a "
            "reference, env:NAME or file:/path"
        )


def _choose_python(spark: "SparkSession") -> None:
    """Have a Spark of this machine run this Python: by default it is the `python3` of PATH, which may lack reliq."""
    context: Any = getattr(spark, "_sc", None)  # Spark Connect has none
    if context is not None and context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


def check_pyspark() -> None:
    """Raise InvalidSetting, with what to install, where PySpark is missing or too old."""
    how = f"{install_command('spark')}, and Java 17 or newer"
    try:
        import pyarrow as pa  # noqa: F401  Spark itself imports it, late, and says less
        import pyspark
    except ImportError as error:
        raise InvalidSetting(f"reliq.spark needs PySpark and PyArrow ({error}): {how}") from None
    found: tuple[Any, ...] = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < _OLDEST:
        raise InvalidSetting(f"reliq.spark needs PySpark 4.1 or newer, this is {pyspark.__version__}: {how}")
