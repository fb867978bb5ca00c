"""kill -9 on drivers, with all their processes, while they stage, while they commit, and in the middle of a stream."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store
from tests.integration.spark import driver
from tests.support.turns import Monitor

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

KEYS = QueueKeys("orders")
ROWS = 200_000


def start(*arguments: str, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a driver; what it says of errors is shown, or goes to a file."""
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, driver.__file__, *arguments]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=errors)


def children_of(pid: int) -> list[int]:
    """It and everything it started."""
    found = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in found.splitlines())}
    family = [pid]
    for one in family:
        family += [child for child, parent in parents.items() if parent == one]
    return family


def kill_when(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> bool:
    """Kill the driver, its JVM and its workers as soon as the condition holds; False when it ended before."""
    while not condition():
        if process.poll() is not None:
            return False
        time.sleep(0.005)
    kill(process)
    return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver with all its processes, if it still runs."""
    if process.poll() is not None:
        return
    for pid in children_of(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(timeout=30)


def visible(orders) -> list[int]:
    with orders.consumer() as consumer:
        found = []
        while batch := consumer.claim(1000):
            found += [message.json()["order"] for message in batch]
            consumer.ack(*batch)
    return sorted(found)


def staged(app) -> list[bytes]:
    return app.store.call(ops.command("KEYS", "reliq:{orders}:staged:*"))


def test_a_driver_killed_while_its_tasks_stage(app, url):
    assert kill_when(start("batch", url, str(ROWS)), lambda: bool(staged(app)))
    assert app.queue("orders").stats().ready == 0
    assert start("batch", url, str(ROWS)).wait(timeout=120) == 0
    assert visible(app.queue("orders")) == list(range(ROWS))
    assert staged(app) == []


def test_a_driver_killed_while_it_commits(app, url):
    process = start("batch", url, str(ROWS))
    assert kill_when(process, lambda: app.store.call(ops.command("LLEN", KEYS.messages)) > 0)
    assert 0 < app.queue("orders").stats().ready < ROWS, "it was killed too late to show anything"
    monitor = Monitor(Store(url))
    while monitor.finish_staged():
        pass
    assert staged(app) == []
    assert start("batch", url, str(ROWS)).wait(timeout=120) == 0
    assert visible(app.queue("orders")) == list(range(ROWS)), "the job run again adds nothing"


def test_a_stream_killed_again_and_again(app, url, tmp_path):
    orders, batches, kills = app.queue("orders"), 50, 10
    orders.send_many([{"order": number} for number in range(20 * batches)])
    for kill in range(kills):
        files = batches // kills * kill + 2
        process = start("stream", url, str(tmp_path))
        assert kill_when(process, lambda: len(list(tmp_path.glob("*.json"))) >= files)  # noqa: B023  called at once
        Monitor(Store(url)).scan()
    assert start("stream", url, str(tmp_path)).wait(timeout=300) == 0
    assert len(list(tmp_path.glob("*.json"))) == batches
    written = [row for batch in range(batches) for row in json.loads((tmp_path / f"{batch}.json").read_text())]
    assert sorted(number for _, number in written) == list(range(20 * batches))
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.dead, stats.counters["acked"]) == (0, 0, 0, 20 * batches)
