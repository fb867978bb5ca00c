"""kill -9 on drivers of streams, at random: every message once, those of a key in order. Files and queue are read.

SPARK_KILLS=60 python -m pytest tests/integration/spark/test_killed_streams.py -m slow: so many kills of each row.
"""

import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
import pytest

from reliq.model.outgoing import NewMessage
from reliq.transport.store import Store
from tests.integration.spark.test_killed_drivers import kill, kill_when, start
from tests.integration.spark.test_lake import files
from tests.support.turns import Monitor

KILLS = int(os.environ.get("SPARK_KILLS", "4"))
KEYS, AHEAD = 5, 100
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600 + 60 * KILLS)]

Rows = list[tuple[int, int]]  #: of a micro-batch: task and number of each row


def key_of(number: int) -> str | None:
    """The first key has half of the messages; every sixth message has none."""
    return None if number % 6 == 5 else f"k{max(0, number % (2 * KEYS) - KEYS)}"


class Sender(threading.Thread):
    """Sends while drivers come and go, a few messages at a time, and no more than a few batches ahead of them."""

    def __init__(self, orders) -> None:
        super().__init__()
        self._orders, self._done = orders, threading.Event()
        self.sent = 0

    def run(self) -> None:
        chance = random.Random(7)
        while not self._done.wait(0.2 * chance.random()):
            if self._orders.stats().ready < AHEAD:
                some = range(self.sent, self.sent + chance.randint(1, 40))
                self._orders.send_many([NewMessage({"order": one}, key=key_of(one)) for one in some])
                self.sent = some.stop

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


def of_files(folder: Path) -> Iterator[Rows]:
    """What foreachBatch wrote; each try of a batch had the same rows in the same order."""
    tries: dict[int, Rows] = {}
    for line in (folder / "attempts").read_text().splitlines():
        batch, rows = json.loads(line)
        assert tries.setdefault(batch, rows) == rows, f"batch {batch} was another one when it was repeated"
    print(f"{len(tries)} batches", flush=True)
    for batch in range(len(tries)):
        written = json.loads((folder / f"{batch}.json").read_text())
        assert written == tries[batch]
        yield written


def of_parquet(folder: Path) -> Iterator[Rows]:
    """What the log of the sink says was committed, file by file."""
    log = folder / "out" / "_spark_metadata"
    for batch in sorted(int(path.name) for path in log.iterdir() if path.name.isdecimal()):
        paths = [Path(json.loads(line)["path"]) for line in (log / str(batch)).read_text().splitlines()[1:]]
        yield [
            (int(path.name.split("-")[1]), json.loads(body)["order"])
            for path in paths
            for body in pq.read_table(folder / "out" / path.name, columns=["value"]).column("value").to_pylist()
        ]


@pytest.mark.parametrize(("kind", "batches"), [("stream", of_files), ("sql", of_parquet)])
def test_drivers_killed_at_random_write_every_message_once_and_those_of_a_key_in_order(
    app, url, tmp_path, kind, batches
):
    chance, orders, monitor = random.Random(f"{kind}{KILLS}"), app.queue("orders"), Monitor(Store(url))
    with Sender(orders) as sender:
        for kills in range(1, KILLS + 1):
            while ends(kind, url, tmp_path, later(tmp_path, chance)):
                monitor.scan()
            monitor.scan()
            print(f"{kills} drivers killed, {orders.stats().ready} messages left", flush=True)
    count = sender.sent
    assert ends(kind, url, tmp_path, lambda: False)
    check(list(batches(tmp_path)), count)
    stats = orders.stats()
    assert (stats.ready, stats.processing, stats.dead) == (0, 0, 0)
    assert stats.counters["acked"] == count


def later(folder: Path, chance: random.Random) -> Callable[[], bool]:
    """Return a condition that holds up to 0.3 s after a query has written so many files."""
    enough, delay = files(folder) + chance.randint(1, 25), 0.3 * chance.random()

    def condition() -> bool:
        if files(folder) < enough:
            return False
        time.sleep(delay)
        return True

    return condition


def ends(kind: str, url: str, folder: Path, condition: Callable[[], bool]) -> bool:
    """Start drivers until one has come to its end, or was killed because the condition held; return whether it ended.

    A driver may give up because a busy machine keeps the Python of Spark from its port for more than ten seconds.
    """
    while True:
        with tempfile.TemporaryFile() as errors:
            driver = start(kind, url, str(folder), errors=errors)
            try:
                if kill_when(driver, condition):
                    return False
            finally:
                kill(driver)
            errors.seek(0)
            said = errors.read().decode()
        if driver.returncode == 0:
            return True
        assert "failed to connect back" in said or "CANNOT_OPEN_SOCKET" in said, said
        print("Spark has given up", flush=True)


def check(written: list[Rows], count: int) -> None:
    """Compare all rows with what was sent."""
    assert sorted(number for rows in written for _, number in rows) == list(range(count))
    for key in {key_of(number) for number in range(count)} - {None}:
        runs = [[(task, number) for task, number in rows if key_of(number) == key] for rows in written]
        assert [number for run in runs for _, number in run] == [one for one in range(count) if key_of(one) == key]
        assert all(len({task for task, _ in run}) <= 1 for run in runs)
    print(f"{len(written)} batches, the longest run {max(map(longest_run, written))}", flush=True)


def longest_run(rows: Rows) -> int:
    keys = [key_of(number) for _, number in rows]
    return max((keys.count(key) for key in set(keys) - {None}), default=0)
