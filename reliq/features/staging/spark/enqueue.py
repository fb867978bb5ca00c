"""`reliq spark enqueue`: files or a table into queues, all rows or none."""

import argparse
from typing import TYPE_CHECKING, Any

from reliq.errors import InvalidSetting
from reliq.features.staging import durable
from reliq.features.staging import steps as staging
from reliq.features.staging.spark.naming import job_name
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, check_job, check_name
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.spark import last_write
from reliq.spark.session import Session, command, common, say
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOLE_ROW = "to_json(struct(*)) AS value"
_NOWHERE = (
    "say where the rows go: --queue NAME, --queue-column COLUMN or --topic-column COLUMN, "
    "or a --select that makes a column queue or topic"
)
_FORMATS = ("parquet", "json", "csv", "jdbc")
_LESS = ("deduplicated", "unroutable")  #: why there may be fewer messages than rows


def add_to(commands: Any) -> None:
    """Add the command to a parser's subparsers."""
    one = command(commands, "enqueue", enqueue, "write files or a table into a queue, all rows or none")
    one.add_argument("--input", required=True, metavar="PATH", help="what to read; with --format jdbc the JDBC URL")
    one.add_argument("--format", choices=_FORMATS, default="parquet", help="the format of the input (default parquet)")
    one.add_argument("--select", metavar="SQL", help="columns of the messages (default: value, the whole row as JSON)")
    where = one.add_mutually_exclusive_group()
    where.add_argument("--queue", metavar="NAME", help="the queue of all rows")
    where.add_argument("--queue-column", metavar="COLUMN", help="the column with the queue of each row")
    where.add_argument("--topic-column", metavar="COLUMN", help="the column with the routing key of each row")
    one.add_argument("--mandatory", action="store_true", help="fail where no queue is bound to a row's topic")
    one.add_argument("--max-body", metavar="SIZE", help="bytes a body may have, such as 8MiB (default 1MiB)")
    one.add_argument("--job", metavar="NAME", help="a name under which these rows are never written twice")
    one.add_argument(
        "--application", default="reliq", metavar="NAME",
        help="the application of --job, if the rows go to several queues (default reliq)",
    )  # fmt: skip
    one.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option for Spark's reader; repeatable"
    )
    common(one)


def enqueue(options: argparse.Namespace) -> int:
    """Write the rows of the input into queues; all of them become visible together."""
    job = check_job(options.job or staging.new_token())
    home, store = _home(options), _store(options)
    before = staging.Job(home, job_name(home, options.application, job))
    if store.run(staging.outcome(home, before.name)) is not None:  # said without starting Spark
        store.run(durable.confirm_again(before, None, options.queue, None, "; run it again with its --job"))
        return _say_before(options, job)
    mandatory = "true" if options.mandatory else None
    how = {"queue": options.queue, "mandatory": mandatory, "maxBody": options.max_body}
    how["application"] = options.application
    with Session(options) as spark:
        writer = _messages(spark, options).write.format("reliq").option("job", job)
        writer.options(**{name: value for name, value in how.items() if value}).mode("append").save()
        result = last_write(spark)
    if result is None:
        return say(options, f"job {job} is committed; Redis could not note its result", job=job)
    if result.committed_before:  # by another driver, since
        return _say_before(options, job)
    less = ", ".join(f"{count} {name}" for name in _LESS if (count := getattr(result, name)))
    counts = {name: getattr(result, name) for name in ("rows", *_LESS, "bytes", "queues", "complete")}
    text = f"{result.messages} messages enqueued{less and f' ({less})'}"
    return say(options, text, job=job, enqueued=result.messages, committed_before=False, **counts)


def _say_before(options: argparse.Namespace, job: str) -> int:
    text = f"job {job} was committed before: nothing enqueued"
    return say(options, text, job=job, enqueued=0, committed_before=True)


def _home(options: argparse.Namespace) -> JobKeys:
    """Return the keys for the record of the job."""
    if options.queue is not None:
        return QueueKeys(check_name(options.queue))
    if options.queue_column is None and options.topic_column is None and options.select is None:
        raise InvalidSetting(_NOWHERE)
    return SEVERAL


def _messages(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    """Return the rows to write, with a column for the queue or topic of each unless all go to one queue."""
    reader = spark.read.format(options.format).options(**dict(_pair(one) for one in options.option))
    rows = reader.option("url", options.input).load() if options.format == "jdbc" else reader.load(options.input)
    rows.createOrReplaceTempView("input")
    if options.select is not None:
        rows = spark.sql(options.select)
    column, name = (options.queue_column, "queue") if options.queue_column else (options.topic_column, "topic")
    if column and column not in rows.columns:
        raise InvalidSetting(f"there is no column {column!r}; there are {', '.join(rows.columns)}")
    if options.select is None:
        quoted = (column or "").replace("`", "``")
        return rows.selectExpr(_WHOLE_ROW, *([f"cast(`{quoted}` AS string) AS {name}"] if column else []))
    if column:
        rows = rows.withColumnRenamed(column, name)
    if options.queue is None and not {"queue", "topic"} & set(rows.columns):
        raise InvalidSetting(_NOWHERE)
    return rows


def _store(options: argparse.Namespace) -> Store:
    return Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"--option {name!r}: write NAME=VALUE")
    return name, value
