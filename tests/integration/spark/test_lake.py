"""A queue into a lake, exactly once: drivers are killed at random, and started again after their lease."""

import os
import random
from pathlib import Path

import pytest

from reliq.transport.store import Store
from tests.integration.spark.test_killed_drivers import kill, kill_when, start
from tests.support.turns import Monitor
from tests.support.workers import eventually

SEED = 21
KILLS = 20
MESSAGES = 800  #: 40 micro-batches: more than 20 kills let through


def files(folder: Path) -> int:
    """What a query leaves step by step: offsets, files of the sink, commits."""
    return sum(len(names) for _, _, names in os.walk(folder))  # which does not mind folders that vanish meanwhile


def killed_at_random(kind: str, url: str, folder: Path, kills: int, between) -> int:
    """Start a query and kill it after a random number of new files, `kills` times; then let it end."""
    chance, killed = random.Random(SEED), 0
    for _ in range(kills):
        enough = files(folder) + chance.randint(1, 20)
        killed += kill_when(start(kind, url, str(folder)), lambda: files(folder) >= enough)  # noqa: B023  called at once
        print(f"{killed} drivers killed", flush=True)
        between()
    last = start(kind, url, str(folder))
    try:
        assert last.wait(timeout=1200) == 0
    finally:
        kill(last)
    return killed


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_the_recipe_writes_every_message_once_also_after_its_lease(session, app, url, tmp_path):
    orders = app.queue("orders")
    orders.send_many([f"{number}" for number in range(MESSAGES)])
    monitor = Monitor(Store(url))

    def lease_is_over() -> None:
        eventually(lambda: (monitor.scan(), orders.stats().processing)[1] == 0, timeout=60)

    assert killed_at_random("table", url, tmp_path, KILLS, lease_is_over) == KILLS
    rows = session.read.parquet(*map(str, (tmp_path / "out").glob("batch=*"))).collect()
    assert sorted(int(row.value) for row in rows) == list(range(MESSAGES))
    assert orders.stats().ready == orders.stats().processing == 0


def test_the_progress_of_a_query_has_the_backlog(spark, app, tmp_path):
    app.queue("orders").send_many([f"{number}" for number in range(30)])
    app.queue("orders").send("later", delay="1h")
    messages = spark.readStream.format("reliq").options(queue="orders", maxMessagesPerBatch=10).load()
    query = messages.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: len(query.recentProgress) >= 3 and query.recentProgress[2].numInputRows == 10, timeout=120)
        backlog = [one.sources[0]["latestOffset"] for one in query.recentProgress[:3]]
    finally:
        query.stop()
    assert all('"delayed": 1' in one and '"oldest_ready_ms"' in one for one in backlog)
    # The first batch claims after Spark has asked for the backlog.
    assert ['"ready": 30' in backlog[0], '"ready": 10' in backlog[1], '"ready": 0' in backlog[2]] == [True] * 3
