"""Autoscaling: the workers a queue needs, from its arrivals, its service time and the age of its oldest message."""

import math
import time
from collections import deque
from dataclasses import dataclass

from reliq.model.stats import Stats
from reliq.ops.schema import Counter

WAIT_WANTED = 30.0  #: seconds a message may be ready; the target for working off the backlog
_WINDOW = 60.0  #: seconds over which arrivals and service time are measured
_LONG = 1.0  #: seconds; of handlers that take this long, a worker holds no more messages than it runs


def desired_workers(
    ready: int, oldest_age: float, arrivals: float, service: float, slots: int, processing: int = 0
) -> int:
    """Return the number of workers needed, with `slots` handlers at once each.

    `arrivals` per second of `service` seconds each keep arrivals * service handlers busy (Little's law); the backlog
    is added, to be worked off in the time that its oldest message has left. At least as many as run the `processing`
    messages now: fewer would cut their runs. Never 0 while there is work. `service` is 0.0 while it is not known.
    """
    time_left = max(WAIT_WANTED - oldest_age, WAIT_WANTED / 4)
    busy = max(service * (arrivals + ready / time_left), _running(processing, service))
    return max(math.ceil(busy / slots - 1e-9), 1 if ready or processing or arrivals > 0 else 0)


def _running(processing: int, service: float) -> float:
    """Return how many of the held messages run: of quick handlers, workers hold many that wait for their turn."""
    return processing * min(service / _LONG, 1.0) if service else processing


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    through: int  #: messages that have ever become ready: claimed ones and waiting ones
    runs: int
    run_seconds: float


class Demand:
    """The demand of one queue, computed from successive statistics."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._samples: deque[_Sample] = deque()

    def note(self, reading: Stats, runs: int, run_seconds: float) -> int:
        """Return the workers needed now; `runs` and `run_seconds` are totals of the queue's handlers."""
        through = reading.counters.get(Counter.CLAIMED, 0) + reading.ready
        latest = _Sample(time.monotonic(), through, runs, run_seconds)
        self._samples.append(latest)
        while len(self._samples) > 2 and self._samples[1].at <= latest.at - _WINDOW:
            self._samples.popleft()
        first = self._samples[0]
        elapsed = latest.at - first.at
        arrivals = max(0.0, (latest.through - first.through) / elapsed) if elapsed > 0 else 0.0
        service = _mean(latest.runs - first.runs, latest.run_seconds - first.run_seconds) or _mean(runs, run_seconds)
        return desired_workers(
            reading.ready, reading.oldest_ready_age, arrivals, service, self._slots, reading.processing
        )


def _mean(runs: int, seconds: float) -> float:
    return seconds / runs if runs > 0 else 0.0
