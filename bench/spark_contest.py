"""The contestants of `python -m bench.spark`: how long each takes, and whose CPU it uses."""

import time
from collections.abc import Callable
from statistics import median

import psutil

WHO = ("Spark's JVM", "its Python", "Redis")  #: uses the CPU
WARM_UPS = 2  #: rounds that do not count


class Contestant:
    """One way to do the work, with the times of its rounds."""

    def __init__(self, name: str, rows: int, work: Callable[[], object]) -> None:
        self.name, self._rows, self._work = name, rows, work
        self._seconds: list[float] = []
        self._cpu: list[dict[str, float]] = []

    def round(self) -> None:
        before, started = cpu_seconds(), time.perf_counter()
        self._work()
        self._seconds.append(time.perf_counter() - started)
        after = cpu_seconds()
        self._cpu.append({who: after[who] - before[who] for who in WHO})

    @property
    def rate(self) -> float:
        """Rows a second, the median of the rounds after the warm-ups."""
        return self._rows / median(self._seconds[WARM_UPS:])

    @property
    def cpu(self) -> float:
        """Microseconds of CPU a row of all processes, the median of the rounds after the warm-ups."""
        return median([sum(one.values()) for one in self._cpu[WARM_UPS:]]) / self._rows * 1e6

    def compare(self, other: "Contestant") -> None:
        """Print how many times as fast as the other one this is, round by round: both had the same machine."""
        pairs = zip(self._seconds[WARM_UPS:], other._seconds[WARM_UPS:], strict=True)
        ratio = median(theirs / ours for ours, theirs in pairs)
        print(f"  {ratio:.2f} times the rate (median of the rounds), for {self.cpu / other.cpu:.2f} times the CPU")

    def report(self) -> None:
        rounds = ", ".join(f"{self._rows / one:,.0f}" for one in self._seconds[WARM_UPS:])
        print(f"{self.name:22}{self.rate:>10,.0f} rows/s  ({rounds})")
        for who in WHO:
            spent = median([cpu[who] for cpu in self._cpu[WARM_UPS:]])
            print(f"    {who:12}{spent / self._rows * 1e6:>8.2f} us of CPU a row")


def cpu_seconds() -> dict[str, float]:
    """What the processes below this one have used so far, with those that ended."""
    spent = dict.fromkeys(WHO, 0.0)
    for process in psutil.Process().children(recursive=True):
        name, times = process.name(), process.cpu_times()
        who = "Spark's JVM" if "java" in name else "Redis" if "redis" in name else "its Python"
        spent[who] += times.user + times.system
        if who == "its Python":
            spent[who] += times.children_user + times.children_system
    return spent
