"""Real processes, killed and paused at random: nothing is lost, and nothing runs after its ack was answered."""

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import reliq
from reliq import ops
from reliq.cli.trials import processes
from reliq.model.keys import QueueKeys, process_of
from tests.support.workers import ROOT, eventually

pytestmark = pytest.mark.campaign

KEYS = QueueKeys("q")
LEASE = 2.0


class Workers(processes.Workers):
    """Worker processes with chosen ids, so that the messages of a killed one can be counted."""

    def __init__(self, app: reliq.Reliq, history: Path) -> None:
        paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "monitor", "api"))
        environment = {"CHAOS_HISTORY": str(history), "PYTHONPATH": paths}
        log = history.with_name("workers.log")
        super().__init__(app.url, "tests.acceptance.chaos_app", log, "--lease", str(LEASE), **environment)
        self._app = app
        self.held_by_victims = 0

    def kill_one(self) -> None:
        worker = self.pop(random.randrange(len(self)))
        worker.kill()
        self._count(worker.owner)

    def pause_one(self) -> processes.WorkerProcess:
        worker = self[0]
        worker.pause()
        self._count(worker.owner)
        return worker

    def only_these_are_known(self) -> bool:
        """Tell whether the victims have been forgotten, as well as earlier lives of the others, which lost a lease.

        An idle one is forgotten after its lease.
        """
        known = [life.decode() for life in self._app.store.call([ops.command("SMEMBERS", KEYS.consumers)])[0]]
        there = {process_of(worker.owner) for worker in self}
        return {process_of(life) for life in known} <= there and len(known) <= len(there)

    def _count(self, owner: str) -> None:
        lists = [KEYS.processing(life) for life in (owner, *(f"{owner}.{number}" for number in range(1, 5)))]
        self.held_by_victims += sum(self._app.store.call([ops.command("LLEN", key) for key in lists]))


@pytest.fixture
def workers(app, tmp_path):
    workers = Workers(app, tmp_path / "history")
    yield workers
    workers.stop()


@pytest.mark.parametrize(("size", "count"), [(200, 10_000), (64 * 1024, 3_000)])
def test_messages_survive_kills_and_a_pause(app, workers, tmp_path, size, count):
    queue = app.queue("q")
    queue.configure(max_deliveries=100)
    ids = queue.send_many([b"x" * size] * count)
    for _ in range(4):
        workers.start()
    eventually(lambda: queue.stats().counters.get("acked", 0) > 100, timeout=60)
    kills = 0
    while kills < 20 and queue.stats().ready > 0:
        time.sleep(0.3)  # the rhythm of the faults, not a wait for anything
        workers.kill_one()
        workers.start()
        kills += 1
        if kills == 8:
            paused = workers.pause_one()
            eventually(lambda: queue.stats().counters.get("reclaimed", 0) > 0)
            time.sleep(LEASE + 1)
            paused.go_on()
    eventually(lambda: queue.stats().counters.get("acked", 0) == len(ids), timeout=120)
    eventually(workers.only_these_are_known, timeout=30)
    workers.stop()

    stats = queue.stats()
    assert kills >= (10 if count == 10_000 else 3)
    assert (stats.ready, stats.processing, stats.delayed, stats.dead, stats.consumers) == (0, 0, 0, 0, 0)
    assert app.store.call(ops.command("HLEN", KEYS.bodies)) == 0
    assert stats.counters["reclaimed"] > 0

    starts: Counter[str] = Counter()
    done: dict[str, int] = {}
    for line in (tmp_path / "history").read_text().splitlines():
        event, identity, at = line.split()
        if event == "D":
            assert identity not in done, "acked twice"
            done[identity] = int(at)
    for line in (tmp_path / "history").read_text().splitlines():
        event, identity, at = line.split()
        if event == "S":
            starts[identity] += 1
            assert int(at) <= done.get(identity, int(at)), f"{identity} started after its ack was answered"
    assert set(starts) == set(ids), "lost"
    duplicates = sum(starts.values()) - len(ids)
    assert duplicates <= workers.held_by_victims


def test_a_killed_worker_is_noticed_long_before_its_lease(app, workers, tmp_path, monkeypatch):
    """The lease is a minute; its connection is gone at once."""
    monkeypatch.setattr(sys.modules[__name__], "LEASE", 60.0)
    queue = app.queue("q")
    for _ in range(2):
        workers.start()
    eventually(lambda: queue.stats().consumers == 2, timeout=60)
    for _ in range(3):
        queue.send_many(range(1000))
        eventually(lambda: queue.stats().processing > 0)
        workers.kill_one()
        workers.start()
        eventually(lambda: queue.stats().ready == queue.stats().processing == 0, timeout=30)
    workers.stop()
    assert queue.stats().counters["acked"] == 3000
