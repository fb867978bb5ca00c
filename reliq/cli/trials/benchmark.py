"""`reliq bench`: how fast reliq is on the user's own Redis, in a queue of its own that is removed afterwards."""

import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from reliq.cli.progress import Progress
from reliq.cli.trials.bench_app import HOLD, MARK, NOTES, NOTHING, QUEUE
from reliq.cli.trials.own_queue import run_trial
from reliq.cli.trials.processes import Workers
from reliq.client.app import Reliq
from reliq.contract import values
from reliq.errors import ReliqError

T = TypeVar("T")

_BATCH = 10_000
_LOOK = 0.005
_SETTLED = 1.5  #: seconds until the monitor has certainly seen a worker's connections


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a benchmark; all values are bounded."""

    messages: int
    samples: int
    kills: int
    time_limit: float

    def __post_init__(self) -> None:
        values.whole(self.messages, "messages", 2, 1_000_000)
        values.whole(self.samples, "samples", 1, 100_000)
        values.whole(self.kills, "kills", 0, 100)
        values.seconds(self.time_limit, "time", 1.0, 86_400.0)


@dataclass(frozen=True, slots=True)
class Report:
    """The results: rates in messages per second, latencies in ms, recoveries in seconds."""

    where: str
    messages: int
    sent_per_second: float
    consumed_per_second: float
    latency_p50_ms: float
    latency_p99_ms: float
    recovery_seconds: Sequence[float]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"Redis at {self.where}",
            f"send_many          {self.sent_per_second:12,.0f} messages/s",
            f"consume            {self.consumed_per_second:12,.0f} messages/s   1 process, 1 thread, empty handler",
            f"send -> handler    {self.latency_p50_ms:12.2f} ms p50   {self.latency_p99_ms:.2f} ms p99, worker idle",
        ]
        if self.recovery_seconds:
            middle, worst = statistics.median(self.recovery_seconds), max(self.recovery_seconds)
            lines.append(f"kill -9 -> handled {middle:12.2f} s median   {worst:.2f} s at most, {self._kills}")
        return "\n".join(lines)

    @property
    def _kills(self) -> str:
        count = len(self.recovery_seconds)
        return f"{count} worker killed" if count == 1 else f"{count} workers killed"


def run(url: str | None, plan: Plan) -> Report:
    """Measure, and remove the queue in any case."""
    return run_trial("bench", url, lambda app, folder: _Bench(app, plan, folder))


class _Bench:
    def __init__(self, app: Reliq, plan: Plan, folder: Path) -> None:
        self.queue = app.queue(f"reliq-bench-{secrets.token_hex(6)}")
        self._app = app
        self._plan = plan
        self._notes = folder / "notes"
        self._notes.touch()
        self.workers = Workers(
            app.url, "reliq.cli.trials.bench_app:app", folder / "workers.log", "--no-monitor",
            **{NOTES: str(self._notes), QUEUE: self.queue.name},
        )  # fmt: skip
        self._until = time.monotonic() + plan.time_limit

    def run(self) -> Report:
        sent = self._send()
        consumed = self._consume()
        waits = self._latencies()
        recoveries = self._recoveries()
        return Report(
            where=self._app.store.where,
            messages=self._plan.messages,
            sent_per_second=sent,
            consumed_per_second=consumed,
            latency_p50_ms=1000 * statistics.median(waits),
            latency_p99_ms=1000 * sorted(waits)[min(len(waits) - 1, int(len(waits) * 0.99))],
            recovery_seconds=recoveries,
        )

    def _send(self) -> float:
        """Return the messages per second; the first and the last message note when they are handled."""
        total, bar = self._plan.messages, Progress("sent", self._plan.messages)
        bodies = [MARK + b"first", *[NOTHING.ljust(200)] * (total - 2), MARK + b"last"]
        began = time.monotonic()
        for start in range(0, total, _BATCH):
            self._in_time()
            self.queue.send_many(bodies[start : start + _BATCH])
            bar.update(min(total, start + _BATCH), final=start + _BATCH >= total)
        return total / (time.monotonic() - began)

    def _consume(self) -> float:
        self.workers.start()
        ((_, ended, _),) = self._wait(lambda: self._noted("last"))
        ((_, began, _),) = self._noted("first")
        return (self._plan.messages - 1) / (ended - began)

    def _latencies(self) -> list[float]:
        """Measure one message at a time, each after the previous one was handled, so with an idle worker."""
        waits, bar = [], Progress("timed", self._plan.samples)
        for number in range(self._plan.samples):
            name, sent = f"sample-{number}", time.monotonic()
            self.queue.send(MARK + name.encode())
            ((_, handled, _),) = self._wait(lambda name=name: self._noted(name))  # type: ignore[misc]
            waits.append(handled - sent)
            bar.update(number + 1, final=number + 1 == self._plan.samples)
        return waits

    def _recoveries(self) -> list[float]:
        """Measure the time from SIGKILL of the worker that holds a message until another worker handles it."""
        found: list[float] = []
        for number in range(self._plan.kills):
            while len(self.workers) < 2:
                self.workers.start()
            self._wait(lambda: self.queue.stats().consumers >= 2)
            time.sleep(_SETTLED)
            name = f"held-{number}"
            self.queue.send(HOLD + name.encode())
            ((_, _, holder),) = self._wait(lambda name=name: self._noted(name))  # type: ignore[misc]
            victim = next(worker for worker in self.workers if worker.process.pid == holder)
            self.workers.remove(victim)
            killed = time.monotonic()
            victim.kill()
            again = self._wait(lambda name=name: self._noted(name)[1:])  # type: ignore[misc]
            found.append(again[0][1] - killed)
        return found

    # --- helpers ---

    def _noted(self, name: str) -> list[tuple[str, float, int]]:
        lines = (line.split() for line in self._notes.read_text().splitlines())
        return [(noted, float(at), int(pid)) for noted, at, pid in lines if noted == name]

    def _wait(self, condition: Callable[[], T]) -> T:
        while not (answer := condition()):
            self._in_time()
            self.workers.check_running()
            time.sleep(_LOOK)
        return answer

    def _in_time(self) -> None:
        if time.monotonic() > self._until:
            raise ReliqError(f"not done within {self._plan.time_limit:g} s: reduce the work, or raise --time")
