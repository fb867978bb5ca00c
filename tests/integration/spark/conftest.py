"""One Spark session a test process, on two cores; every test has a Redis of its own, empty."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from reliq.spark import register
from tests.support.workers import eventually

os.environ["PYSPARK_PYTHON"] = sys.executable
# The workers of Spark are processes of their own: they find reliq as the tests do.
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])

# Without pyspark.zip, which a worker compiles anew at each start, in 0.84 s of CPU in place of 0.24: Spark gives up on
# one that has not begun after ten seconds, which a busy machine may take.
_home = tempfile.TemporaryDirectory(prefix="spark-")
for part in Path(pyspark.__file__).parent.iterdir():
    if part.name != "python":
        (Path(_home.name) / part.name).symlink_to(part)
os.environ["SPARK_HOME"] = _home.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A first job takes minutes on a loaded machine; py4j leaves its sockets to the garbage collector."""
    for item in items:
        if item.nodeid.startswith("tests/integration/spark/"):
            if "session" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def session(tmp_path_factory) -> Iterator[SparkSession]:
    spark = (
        SparkSession.builder.master("local[2,2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Short jobs on few cores: compiling costs them more than it gains.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture
def spark(session: SparkSession, url: str) -> Iterator[SparkSession]:
    register(session, url)
    yield session
    # The tasks of a job that failed run on after it: they must not write into the next test's Redis.
    eventually(lambda: not running_tasks(session), timeout=60)


def running_tasks(session: SparkSession) -> int:
    executors = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(executor.numRunningTasks() for executor in executors)


@pytest.fixture
def orders(app):
    return app.queue("orders")
