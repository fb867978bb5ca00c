"""A standalone cluster on this machine: a master and two workers."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.support.ports import free_port

SPARK_BIN = Path(pyspark.__file__).parent / "bin"


@contextlib.contextmanager
def standalone(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a cluster with this environment, and nothing else of ours; yield its URL.

    The workers have addresses of their own: Spark puts no twin on the host of its first attempt.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = {**environment, "SPARK_LOG_DIR": str(folder), "SPARK_DAEMON_MEMORY": "256m"}
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    workers = [
        ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "768m",
         "--webui-port", "0", "--work-dir", str(folder / host), url]
        for host in ("127.0.0.2", "127.0.0.3")
    ]  # fmt: skip
    with (folder / "cluster.log").open("wb") as log, contextlib.ExitStack() as processes:
        for command in (master, *workers):
            process = subprocess.Popen([SPARK_BIN / "spark-class", *command], env=environment, stdout=log, stderr=log)
            processes.callback(_stop, process)
        yield url


def _stop(process: subprocess.Popen) -> None:
    process.terminate()
    process.wait(timeout=30)
