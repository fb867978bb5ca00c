"""Spark Connect: the client has no JVM, and the plans, readers and writers go to a server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.spark import connect_job

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.spark
def test_a_client_writes_reads_streams_and_is_told_about_an_invalid_row(app, url, tmp_path):
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, connect_job.__file__, url, str(tmp_path)]
    job = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    found = [line for line in job.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, job.stderr[-4000:]
    answer = json.loads(found[0].removeprefix("FOUND "))
    assert (answer["read"], answer["streamed"]) == (30, 30)
    assert "column `value` in row 0 of partition 0: is null" in answer["refused"]
    assert answer["written"] == [10, 30]
    assert "does not hand out spark.reliq.secret.url: give the URL to reliq.spark.register" in answer["withheld"]
    assert app.queue("orders").stats().counters["acked"] == 30
