"""A Spark session for the commands `reliq spark ...`, and what these have in common."""

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliq.errors import InvalidSetting, ReliqError
from reliq.protocol.application import url_from_environment
from reliq.spark import check_pyspark, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OLDEST_JAVA = 17
# Spark wraps an error of a worker into its traceback; only the sentence is useful.
_OURS = re.compile(r"^reliq\.errors\.\w+: (.+)$", re.MULTILINE)


def command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
    """Add a command to a parser's subparsers."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    parser.set_defaults(run=run)
    return parser


def common(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands."""
    parser.add_argument("--url", metavar="URL", help="the Redis server (default: RELIQ_URL)")
    parser.add_argument("--master", help="where Spark runs (default: local[*], or what spark-submit says)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def say(options: argparse.Namespace, text: str, **values: Any) -> int:
    """Print the outcome of a command, as text or JSON; return its status."""
    print(json.dumps(values) if options.json else text)
    return 0


class Session:
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
