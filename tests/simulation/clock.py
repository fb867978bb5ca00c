"""The one clock of a simulation, and its one source of chance: in this process, `time` and ids follow them."""

import contextlib
import random
import secrets
import time
from collections.abc import Iterator

from reliq.model import element

EPOCH = 1_700_000_000.0  #: the time at which each simulation begins, seconds


class VirtualClock:
    """Time passes when the simulation says so. `skew`: how far the clock of the running process is ahead, seconds."""

    def __init__(self) -> None:
        self.now = EPOCH
        self.skew = 0.0

    def wall(self) -> float:
        return self.now + self.skew

    def wall_ns(self) -> int:
        return round(self.wall() * 1e9)

    def monotonic(self) -> float:
        return self.now - EPOCH + 1000.0


@contextlib.contextmanager
def in_force(clock: VirtualClock, seed: int) -> Iterator[None]:
    """Put the clock in the place of this process' clock, and make ids, nonces and jitter follow from the seed."""
    chance = random.Random(seed)
    replaced = (
        (time, "time", clock.wall),
        (time, "time_ns", clock.wall_ns),
        (time, "monotonic", clock.monotonic),
        (time, "clock_gettime", lambda _: clock.monotonic()),
        (secrets, "token_hex", lambda count=16: chance.randbytes(count).hex()),
        (element, "_random", chance),
    )
    before = [(place, name, getattr(place, name)) for place, name, _ in replaced]
    jitter = random.getstate()
    random.seed(seed)
    try:
        for place, name, value in replaced:
            setattr(place, name, value)
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
        random.setstate(jitter)
