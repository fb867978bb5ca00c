"""`reliq spark enqueue` and `reliq spark export-dead`: ready-made Spark jobs.

Runs with plain Python on this machine, and unchanged with spark-submit on a cluster:

    spark-submit --master yarn path/to/reliq/spark/pipeline.py enqueue --input s3a://... --format parquet --queue orders
"""

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliq.errors import InvalidSetting, ReliqError
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, check_name
from reliq.protocol import staging
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.protocol.staging import check_job, new_token
from reliq.spark import check_pyspark, register
from reliq.transport.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OLDEST_JAVA = 17
_WHOLE_ROW = "to_json(struct(*)) AS value"
_NOWHERE = (
    "say where the rows go: --queue NAME, --queue-column COLUMN or --topic-column COLUMN, "
    "or a --select that makes a column queue or topic"
)
_CSV = {"header": "true", "multiLine": "true", "escape": '"'}  #: an error's text has lines and quotes
_FORMATS = ("parquet", "json", "csv")
# Spark wraps an error of a worker into its traceback; only the sentence is useful.
_OURS = re.compile(r"^reliq\.errors\.\w+: (.+)$", re.MULTILINE)


def add_commands(commands: Any) -> None:
    """Add `enqueue` and `export-dead` to a parser's subparsers; each sets `run`."""
    one = commands.add_parser("enqueue", help="write files or a table into a queue, all rows or none")
    one.set_defaults(run=enqueue)
    one.add_argument("--input", required=True, metavar="PATH", help="what to read; with --format jdbc the JDBC URL")
    one.add_argument("--format", choices=(*_FORMATS, "jdbc"), default="parquet", help="of the input (default parquet)")
    one.add_argument("--select", metavar="SQL", help="columns of the messages (default: value, the whole row as JSON)")
    where = one.add_mutually_exclusive_group()
    where.add_argument("--queue", metavar="NAME", help="the queue of all rows")
    where.add_argument("--queue-column", metavar="COLUMN", help="names the queue of each row")
    where.add_argument("--topic-column", metavar="COLUMN", help="routing key of each row: to every queue bound to it")
    one.add_argument("--mandatory", action="store_true", help="fail where no queue is bound to a row's topic")
    one.add_argument("--max-body", metavar="SIZE", help="bytes a body may have, such as 8MiB (default 1MiB)")
    one.add_argument("--job", metavar="NAME", help="a name under which these rows are never written twice")
    one.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of Spark's reader; repeatable"
    )
    _common(one)
    one = commands.add_parser(
        "export-dead", help="write the dead letters of a queue to files; they stay where they are"
    )
    one.set_defaults(run=export_dead)
    one.add_argument("--output", required=True, metavar="PATH", help="a folder that does not exist yet")
    one.add_argument("--format", choices=_FORMATS, default="parquet", help="of the output (default parquet)")
    one.add_argument("--queue", required=True, metavar="NAME", help="the queue's name")
    one.add_argument("--where", metavar="SQL", help="only these, e.g. \"reason = 'rejected'\"")
    _common(one)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", metavar="URL", help="the Redis server (default: RELIQ_URL)")
    parser.add_argument("--master", help="where Spark runs (default: local[*], or what spark-submit says)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def enqueue(options: argparse.Namespace) -> int:
    """Write the rows of the input into queues; all of them become visible together."""
    job = check_job(options.job or new_token())
    home, store = _home(options), _store(options)
    before = store.run(staging.outcome(home, job))
    if before is None:
        mandatory = "true" if options.mandatory else None
        how = {"queue": options.queue, "mandatory": mandatory, "maxBody": options.max_body}
        with _Session(options) as spark:
            writer = _messages(spark, options).write.format("reliq").option("job", job)
            writer.options(**{name: value for name, value in how.items() if value}).mode("append").save()
    after = store.run(staging.outcome(home, job))
    written = after if before is None and after is not None else 0
    text = f"{written} messages enqueued" if before is None else f"job {job} was committed before: nothing enqueued"
    return _say(options, text, job=job, enqueued=written)


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


def export_dead(options: argparse.Namespace) -> int:
    """Write the dead letters to files, one row each."""
    check_name(options.queue)
    with _Session(options) as spark:
        letters = spark.read.format("reliq").options(queue=options.queue, state="dead").load()
        if options.where:
            letters = letters.where(options.where)
        how = _CSV if options.format == "csv" else {}
        files = _as_text(letters, options.format).write.format(options.format).options(**how)
        files.mode("errorifexists").save(options.output)
        count = spark.read.format(options.format).options(**how).load(options.output).count()
    return _say(options, f"{count} dead letters written to {options.output}", exported=count)


def _as_text(letters: "DataFrame", format: str) -> "DataFrame":
    """Convert for text formats: JSON and CSV have no bytes, so the value is text; CSV has JSON as headers."""
    if format == "parquet":
        return letters
    headers = "to_json(headers) AS headers" if format == "csv" else "headers"
    others = [name for name in letters.columns if name not in ("id", "value", "headers")]
    return letters.selectExpr("id", "cast(value AS string) AS value", headers, *others)


class _Session:
    """A Spark session for the duration of a command; errors of reliq in it are raised as their sentence."""

    def __init__(self, options: argparse.Namespace) -> None:
        check_pyspark()
        self._options = options
        self._spark: SparkSession | None = None

    def __enter__(self) -> "SparkSession":
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder.appName("reliq").config(  # its type is that of the class, not the builder
            "spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower()
        )
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit, which has said all this
            check_java()
            master = self._options.master or "local[*]"
            if master.startswith("local"):
                os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take the python3 of PATH
            builder = builder.master(master)
        spark: SparkSession = builder.getOrCreate()
        self._spark = spark
        spark.sparkContext.setLogLevel("OFF")
        for chatty in ("SQLQueryContextLogger", "py4j"):
            logging.getLogger(chatty).setLevel(logging.CRITICAL)  # we print the sentence ourselves
        register(spark, url_from_environment(self._options.url))
        return spark

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        from pyspark.errors import PySparkException

        if self._spark is not None:
            self._spark.stop()
        if isinstance(error, PySparkException):
            ours = _OURS.search(str(error))
            raise ReliqError(ours[1] if ours else str(error).strip().partition("\n")[0]) from None


def check_java() -> None:
    """Raise InvalidSetting, with what to install, if there is no Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    found = _java_version(java) if java else 0
    if found < _OLDEST_JAVA:
        seen = f"this is Java {found}" if found else "there is none on PATH or in JAVA_HOME"
        raise InvalidSetting(
            f"Spark needs Java {_OLDEST_JAVA} or newer and {seen}: install it (Debian and Ubuntu: "
            "apt install openjdk-17-jre-headless, macOS: brew install openjdk@17)"
        )


def _java_version(java: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(found[1]) if found else 0


def _store(options: argparse.Namespace) -> Store:
    return Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"--option {name!r}: write NAME=VALUE")
    return name, value


def _say(options: argparse.Namespace, text: str, **values: Any) -> int:
    print(json.dumps(values) if options.json else text)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands, for spark-submit."""
    parser = argparse.ArgumentParser(prog="pipeline.py", description="Queues from data, and data from queues.")
    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        return status
    except ReliqError as error:
        print(f"reliq: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1


if __name__ == "__main__":
    sys.exit(main())
