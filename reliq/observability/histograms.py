"""Histograms of a process: how long messages waited, ran, and took to come back.

Measurements are added per batch, never per message, and only if metrics are wanted: a worker without metrics pays
nothing. This module does not know Prometheus; `reliq.observability.prometheus` exports the numbers.
"""

import mmap
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Protocol

from reliq.model.message import Message


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: its hash is needed for every batch
class Family:
    """One histogram of `reliq.contract.metrics`: its name, and the upper bounds of its buckets in seconds, but +Inf."""

    name: str
    bounds: tuple[float, ...]

    @property
    def cells(self) -> int:
        """The number of values stored: a count for each bucket, including +Inf, and the sum."""
        return len(self.bounds) + 2


WAIT = Family(
    "reliq_message_wait_seconds",
    (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
PROCESS = Family(
    "reliq_message_process_seconds",
    (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
RECOVERY = Family("reliq_recovery_seconds", (0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 15, 17, 20, 30, 60, 300))
LATENESS = Family(
    "reliq_schedule_lateness_seconds",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200),
)
HTTP = Family(
    "reliq_http_request_seconds", (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
)

_STRIDE = 32  #: quick runs that are measured together
_LONG_BATCH = 2 * _STRIDE
_QUICK = 0.001  #: seconds

_OF_A_WORKER = (WAIT, PROCESS)
_OF_A_MONITOR = (RECOVERY, LATENESS)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Histogram:
    """Counts by bucket and the sum, in a row of doubles of this process or shared with its parent."""

    __slots__ = ("_bounds", "_cells")

    def __init__(self, family: Family, cells: "memoryview[float]") -> None:
        self._bounds = family.bounds
        self._cells = cells

    def add(self, values: list[float], each: int) -> None:
        """Count all values, `each` times. Sorts the list: one search per bucket is cheaper than one per value."""
        values.sort()
        bounds, cells, done = self._bounds, self._cells, 0
        place = bisect_left(bounds, values[0])
        while done < len(values):
            upto = bisect_right(values, bounds[place], done) if place < len(bounds) else len(values)
            cells[place] += (upto - done) * each
            done, place = upto, place + 1
        cells[len(bounds) + 1] += sum(values) * each

    def add_one(self, value: float) -> None:
        """Count a value."""
        self._cells[bisect_left(self._bounds, value)] += 1
        self._cells[len(self._bounds) + 1] += value

    @property
    def counts(self) -> list[int]:
        """The counts of the buckets; the last one is +Inf."""
        return [int(count) for count in self._cells[:-1]]

    @property
    def sum(self) -> float:
        return self._cells[-1]


Labels = tuple[str, ...]


class Run(Protocol):
    """A run of a handler in a worker."""

    started: float  #: monotonic clock

    @property
    def message(self) -> Message: ...


def _waited(run: Run, clock_offset: float) -> float:
    return max(0.0, run.started + clock_offset - run.message.enqueued_at / 1000)


class Measurements:
    """The histograms of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._series: dict[tuple[Family, Labels], Histogram] = {}

    @classmethod
    def shared(cls, path: Path, queues: Iterable[str]) -> "Measurements":
        """Return a worker's histograms in a file that its parent maps, too.

        The measurements of a killed worker are not lost, and its successor goes on adding to them.
        """
        keys = [(family, (queue,)) for queue in sorted(queues) for family in _OF_A_WORKER]
        size = 8 * sum(family.cells for family, _ in keys)
        with path.open("a+b") as file:
            file.truncate(size)
            cells = memoryview(mmap.mmap(file.fileno(), size)).cast("d")
        measurements, start = cls(), 0
        for family, labels in keys:
            measurements._series[family, labels] = Histogram(family, cells[start : start + family.cells])
            start += family.cells
        return measurements

    def add(self, family: Family, labels: Labels, values: list[float], each: int = 1) -> None:
        """Count these seconds, `each` times; does nothing for an empty list."""
        if not values:
            return
        with self._lock:
            self._histogram(family, labels).add(values, each)

    def _histogram(self, family: Family, labels: Labels) -> Histogram:
        found = self._series.get((family, labels))
        if found is None:
            cells = memoryview(bytearray(8 * family.cells)).cast("d")
            found = self._series[family, labels] = Histogram(family, cells)
        return found

    def ran(self, queue: str, runs: Sequence[tuple[Run, float]], clock_offset: float) -> None:
        """Note concurrent runs of the queue's handler, each with the time of its end by the monotonic clock.

        `clock_offset`: seconds that the Redis server's clock is ahead of the monotonic clock.
        """
        self.add(WAIT, (queue,), [_waited(run, clock_offset) for run, _ in runs])
        self.add(PROCESS, (queue,), [ended - run.started for run, ended in runs])

    def ran_in_turn(self, queue: str, runs: Sequence[Run], ended: float, clock_offset: float) -> None:
        """Note successive runs of the queue's handler, the last one until `ended`.

        A worker with a quick handler runs far more than 100,000 per second; measuring each would cost several percent.
        So in a long batch 32 runs are measured together: their mean counts 32 times, unless they took a millisecond;
        their waits are that of the first. Counts and sums stay exact.
        """
        together = len(runs) // _STRIDE * _STRIDE if len(runs) >= _LONG_BATCH else 0
        firsts = runs[:together:_STRIDE]
        marks = [run.started for run in firsts]
        marks.append(runs[together].started if together < len(runs) else ended)
        spans = list(map(sub, marks[1:], marks))
        singly = list(range(together, len(runs)))
        if spans and max(spans) >= _QUICK:
            for place, span in enumerate(spans):
                if span >= _QUICK:
                    singly += range(place * _STRIDE, (place + 1) * _STRIDE)
            spans = [span for span in spans if span < _QUICK]
        self.add(PROCESS, (queue,), [span / _STRIDE for span in spans], _STRIDE)
        self.add(WAIT, (queue,), [_waited(run, clock_offset) for run in firsts], _STRIDE)
        if singly:
            ends = [run.started for run in runs[1:]] + [ended]
            self.add(PROCESS, (queue,), [ends[place] - runs[place].started for place in singly])
            self.add(WAIT, (queue,), [_waited(run, clock_offset) for run in runs[together:]])

    def recovered(self, queue: str, seconds: float, messages: int) -> None:
        """Note that `messages` came back `seconds` after their consumer vanished."""
        self.add(RECOVERY, (queue,), [max(0.0, seconds)] * messages)

    def late(self, queue: str, seconds: list[float]) -> None:
        """Note how late the ticks of a queue's schedules were sent."""
        self.add(LATENESS, (queue,), seconds)

    def keep(self, queues: Container[str]) -> None:
        """Forget what a monitor has measured of all other queues: they are gone."""
        with self._lock:
            for family, labels in [*self._series]:
                if family in _OF_A_MONITOR and labels[0] not in queues:
                    del self._series[family, labels]

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Note an answered HTTP request; `route` is the template of its path, never the path itself."""
        labels = method if method in _METHODS else "other", route, str(status)
        with self._lock:
            self._histogram(HTTP, labels).add_one(seconds)

    def read(self) -> list[tuple[Family, Labels, list[int], float]]:
        """Return all series: family, labels, counts by bucket, sum."""
        with self._lock:
            return [(family, labels, one.counts, one.sum) for (family, labels), one in self._series.items()]


def totals(every: Sequence[Measurements]) -> list[tuple[Family, Labels, list[int], float]]:
    """Return the series of several processes, with equal ones added up."""
    found: dict[tuple[Family, Labels], tuple[list[int], float]] = {}
    for measurements in every:
        for family, labels, counts, total in measurements.read():
            before, sum_before = found.get((family, labels), ([0] * len(counts), 0.0))
            found[family, labels] = (
                [first + second for first, second in zip(before, counts, strict=True)], sum_before + total,
            )  # fmt: skip
    return [(family, labels, counts, total) for (family, labels), (counts, total) in sorted(found.items(), key=_name)]


def _name(item: tuple[tuple[Family, Labels], object]) -> tuple[str, Labels]:
    (family, labels), _ = item
    return family.name, labels
