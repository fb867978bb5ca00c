"""A thousand tasks and fifty kills, of pool processes and of whole workers: no task is lost."""

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import reliq
from tests.integration.celery.workers import APP, Process, environment
from tests.support.workers import eventually

TASKS, KILLS = 1000, 50
WORKERS = 2


@dataclass
class Run:
    """What came out of a run."""

    lost: int
    twice: int
    dead: int
    seconds: float
    last_wait: float  #: seconds from the last kill to the last task

    def __str__(self) -> str:
        return (
            f"lost {self.lost}, run to the end more than once {self.twice}, dead letters {self.dead}, "
            f"{self.seconds:.0f} s, the last task {self.last_wait:.1f} s after the last kill"
        )


class Crew:
    """Workers of which any process may be killed; a killed one is replaced."""

    def __init__(self, broker: str, options: Mapping[str, object]) -> None:
        self._broker = broker
        self._options = json.dumps(dict(options))
        self._started = 0
        self._workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> Process:
        self._started += 1
        arguments = ("worker", "-c", "2", "-n", f"w{self._started}@test", "-l", "INFO", "--without-mingle")
        return Process(self._broker, *arguments, TEST_OPTIONS=self._options)

    def kill(self, chance: random.Random) -> None:
        """Kill a pool process, or a whole worker in every third case."""
        place = chance.randrange(WORKERS)
        victim = self._workers[place]
        if chance.random() < 1 / 3:
            victim.process.kill()
            victim.end()
            self._workers[place] = self._start()
            return
        with suppress(psutil.NoSuchProcess, IndexError, ProcessLookupError):
            os.kill(chance.choice(victim.children), signal.SIGKILL)

    def end(self) -> None:
        for worker in self._workers:
            worker.end()


def run(broker: str, folder: Path, options: Mapping[str, object], patience: float) -> Run:
    """Send the tasks, kill a process after every twentieth one, and wait for the rest.

    If nothing more comes, what has not is counted as lost.
    """
    path, chance = folder / "notes", random.Random(7)
    path.touch()
    crew, begun = Crew(broker, options), time.monotonic()
    try:
        _send(broker, path)
        last_kill = begun
        with suppress(AssertionError):
            for number in range(KILLS):
                eventually(functools.partial(_reached, path, number * TASKS // KILLS), patience)
                crew.kill(chance)
                last_kill = time.monotonic()
            eventually(lambda: len(set(_ended(path))) == TASKS, patience)
        took, waited = time.monotonic() - begun, time.monotonic() - last_kill
    finally:
        crew.end()
    ended = _ended(path)
    dead = 0
    if broker.startswith("reliq+"):
        with reliq.Reliq(broker.removeprefix("reliq+")) as app:
            dead = app.queue("celery").stats().dead
    return Run(TASKS - len(set(ended)) - dead, len(ended) - len(set(ended)), dead, took, waited)


def _send(broker: str, path: Path) -> None:
    code = f"from {APP} import note\nfor n in range({TASKS}): note.delay({str(path)!r}, str(n), 0.03)"
    subprocess.run([sys.executable, "-c", code], env=environment(broker), check=True)


def _ended(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("end ")]


def _reached(path: Path, count: int) -> bool:
    return len(_ended(path)) >= count


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills_lose_no_task(url: str, tmp_path: Path) -> None:
    result = run(f"reliq+{url}", tmp_path, {}, patience=120)
    print(f"\nreliq            {result}")
    assert result.lost == 0
    beside = tmp_path / "beside"
    beside.mkdir()
    tuned = {"visibility_timeout": 20, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    print(f"Redis transport  {run(url.replace('/0', '/5'), beside, tuned, patience=120)} (visibility timeout 20 s)")
