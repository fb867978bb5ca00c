"""A standalone cluster of two workers: tasks that fail, die and are overtaken by a speculative twin."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliq import ops
from tests.integration.spark import cluster_job
from tests.integration.spark.standalone import standalone

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(tmp_path) -> Iterator[str]:
    with standalone(tmp_path, {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}) as url:
        yield url


@pytest.mark.slow
@pytest.mark.spark
def test_retried_dying_and_speculative_tasks_write_each_row_once(cluster, app, url, tmp_path):
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    command = [sys.executable, cluster_job.__file__, cluster, url, str(attempts), "2000"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
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
