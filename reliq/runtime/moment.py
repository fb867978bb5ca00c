"""Deadlines that also pass while a process or its machine is suspended."""

import math
import time
from typing import NamedTuple, Self


def boot_time() -> float:
    """Return the seconds of a clock that never jumps, and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Moment(NamedTuple):
    """A point in time by two clocks, in seconds: either of them may stand still during a suspension."""

    monotonic: float
    wall: float

    @classmethod
    def now(cls) -> Self:
        return cls(time.monotonic(), time.time())

    @classmethod
    def never(cls) -> Self:
        """Return a point in time that has always passed."""
        return cls(-math.inf, -math.inf)

    def after(self, seconds: float) -> Self:
        return type(self)(self.monotonic + seconds, self.wall + seconds)

    def passed(self) -> bool:
        """Whether the moment has passed by at least one of the clocks."""
        return time.monotonic() > self.monotonic or time.time() > self.wall


def earlier(milliseconds: int) -> int:
    """Return a time of the Redis server's clock, or this machine's time if that is earlier; ms since the epoch."""
    return min(milliseconds, time.time_ns() // 1_000_000)
