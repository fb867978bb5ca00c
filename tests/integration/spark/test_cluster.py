"""A standalone cluster of two workers: tasks that fail, die and are overtaken by a speculative twin."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from reliq import ops
from tests.integration.spark import cluster_job

ROOT = Path(__file__).parents[3]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path) -> Iterator[str]:
    """A master and two workers, on addresses of their own: Spark puts no twin on the host of its first attempt."""
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOG_DIR": str(tmp_path),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    workers = [
        ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "768m",
         "--webui-port", "0", "--work-dir", str(tmp_path / host), url]
        for host in ("127.0.0.2", "127.0.0.3")
    ]  # fmt: skip
    with (tmp_path / "cluster.log").open("wb") as log:
        processes = [
            subprocess.Popen([str(SPARK_CLASS), *command], env=environment, stdout=log, stderr=log)
            for command in (master, *workers)
        ]
        yield url
        for process in processes:
            process.terminate()
            process.wait(timeout=30)


@pytest.mark.slow
@pytest.mark.spark
def test_retried_dying_and_speculative_tasks_write_each_row_once(cluster, app, url, tmp_path):
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    command = [sys.executable, cluster_job.__file__, cluster, url, str(attempts), "2000"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170, check=False)
    assert job.returncode == 0, job.stderr[-4000:]

    ran_twice = {path.name.partition("-")[0] for path in attempts.iterdir() if not path.name.endswith("-0")}
    assert ran_twice >= {str(one) for one in (cluster_job.FAILS, cluster_job.DIES, cluster_job.LAGS)}

    orders = app.queue("orders")
    with orders.consumer() as consumer:
        found = []
        while batch := consumer.claim(1000):
            found += [message.json()["order"] for message in batch]
            consumer.ack(*batch)
    assert sorted(found) == list(range(cluster_job.PARTITIONS * 2000))
    assert app.store.call(ops.command("KEYS", "reliq:{orders}:staged:*")) == []
