"""A declarative pipeline (spark-pipelines): a queue is a source of tables and the sink of a flow."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pipelines = pytest.importorskip("pyspark.pipelines", reason="PySpark before 4.1 has none")

PROJECT = Path(__file__).with_name("pipeline")


def run(folder: Path, url: str) -> str:
    """Run the pipeline as a newcomer would; return what it printed."""
    tools = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "RELIQ_URL": url,
    }
    command = [str(tools / "spark-pipelines"), "run", "--remote", "local[2]", "--conf", "spark.ui.enabled=false"]
    log = folder / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            process.wait(timeout=800)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return log.read_text()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_queue_is_source_and_sink_of_a_pipeline(session, app, url, tmp_path):
    orders = app.queue("orders")
    orders.send("broken", id="bad")
    with orders.consumer() as consumer:
        consumer.dead(consumer.claim(1)[0], "no luck")
    orders.send_many([f"{number}" for number in range(30)])
    shutil.copytree(PROJECT, tmp_path, dirs_exist_ok=True)
    specification = tmp_path / "spark-pipeline.yml"
    specification.write_text(specification.read_text().replace("STORAGE", f"file://{tmp_path}/storage"))

    printed = run(tmp_path, url)

    assert "Run is COMPLETED" in printed, printed[-3000:]
    table = session.read.parquet(str(tmp_path / "spark-warehouse" / "orders"))
    assert sorted(int(row.value) for row in table.collect()) == list(range(30))
    dead = session.read.parquet(str(tmp_path / "spark-warehouse" / "dead")).collect()
    assert [row.id for row in dead] == ["bad"]
    assert app.queue("shipping").stats().ready == 30
    assert orders.stats().counters["acked"] == 30
