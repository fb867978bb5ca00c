"""`reliq spark enqueue` and `reliq spark export-dead`: ready-made Spark jobs; and what streams hold.

Runs with plain Python on this machine, and unchanged with spark-submit on a cluster:

    spark-submit --master yarn path/to/reliq/spark/pipeline.py enqueue --input s3a://... --format parquet --queue orders
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from reliq.errors import ReliqError
from reliq.features.staging.spark.enqueue import add_to as add_enqueue
from reliq.model.keys import check_name
from reliq.spark.held import add_to as add_claims
from reliq.spark.session import Session, command, common, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CSV = {"header": "true", "multiLine": "true", "escape": '"'}  #: an error's text has lines and quotes
_FORMATS = ("parquet", "json", "csv")


def add_commands(commands: Any) -> None:
    """Add all commands to a parser's subparsers; each sets `run`."""
    for part in PARTS:
        part(commands)


def add_export_dead(commands: Any) -> None:
    """Add `export-dead`."""
    what = "write the dead letters of a queue to files; they stay where they are"
    one = command(commands, "export-dead", export_dead, what)
    one.add_argument("--output", required=True, metavar="PATH", help="a folder that does not exist yet")
    one.add_argument("--format", choices=_FORMATS, default="parquet", help="the format of the output (default parquet)")
    one.add_argument("--queue", required=True, metavar="NAME", help="the queue's name")
    one.add_argument("--where", metavar="SQL", help="only these, e.g. \"reason = 'rejected'\"")
    common(one)


def export_dead(options: argparse.Namespace) -> int:
    """Write the dead letters to files, one row each."""
    check_name(options.queue)
    with Session(options) as spark:
        letters = spark.read.format("reliq").options(queue=options.queue, state="dead").load()
        if options.where:
            letters = letters.where(options.where)
        how = _CSV if options.format == "csv" else {}
        files = _as_text(letters, options.format).write.format(options.format).options(**how)
        files.mode("errorifexists").save(options.output)
        count = spark.read.format(options.format).options(**how).load(options.output).count()
    return say(options, f"{count} dead letters written to {options.output}", exported=count)


def _as_text(letters: "DataFrame", format: str) -> "DataFrame":
    """Convert for text formats: JSON and CSV have no bytes, so the value is text; CSV has JSON as headers."""
    if format == "parquet":
        return letters
    headers = "to_json(headers) AS headers" if format == "csv" else "headers"
    others = [name for name in letters.columns if name not in ("id", "value", "headers")]
    return letters.selectExpr("id", "cast(value AS string) AS value", headers, *others)


PARTS: tuple[Callable[[Any], None], ...] = (add_enqueue, add_export_dead, add_claims)


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
