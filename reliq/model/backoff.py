"""Back-offs: when a failed message is tried again.

A back-off takes the number of failures and the latest error, and returns the delay in seconds until the next try, or
None: no more tries, the message becomes a dead letter. `limit` counts the retries: limit=3 means at most four runs.
Any function of this form is a back-off, and a number n stands for exponential(limit=n).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reliq.contract.values import Duration, number, seconds, whole
from reliq.errors import InvalidHandler, InvalidSetting

Backoff = Callable[[int, BaseException], float | None]

_RETRIES_MOST = 10_000


@dataclass(frozen=True, slots=True, match_args=False)
class fixed:
    """The same delay each time: fixed("30s", limit=3)."""

    delay: Duration
    limit: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", seconds(self.delay, "delay"))
        whole(self.limit, "limit", 0, _RETRIES_MOST)

    def __call__(self, failures: int, error: BaseException) -> float | None:
        return float(self.delay) if failures <= self.limit else None  # type: ignore[arg-type]


class steps:
    """One delay after another, as many retries as there are delays: steps("10s", "100s", "1h", "2h", "10h")."""

    __slots__ = ("delays",)

    def __init__(self, *delays: Duration) -> None:
        if not delays:
            raise InvalidSetting("steps() needs at least one delay")
        self.delays = tuple(seconds(delay, f"delay {place}") for place, delay in enumerate(delays, 1))

    def __call__(self, failures: int, error: BaseException) -> float | None:
        return self.delays[failures - 1] if failures <= len(self.delays) else None

    def __repr__(self) -> str:
        return f"steps{self.delays}"


@dataclass(frozen=True, slots=True, match_args=False)
class exponential:
    """Growing delays: first, first x factor, first x factor^2 ... up to cap, each varied by up to +-jitter."""

    first: Duration = 5.0
    factor: float = 3.0
    jitter: float = 0.2
    cap: Duration = 3600.0
    limit: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", seconds(self.first, "first"))
        object.__setattr__(self, "cap", seconds(self.cap, "cap"))
        whole(self.limit, "limit", 0, _RETRIES_MOST)
        number(self.factor, "factor", 1, 1000)
        number(self.jitter, "jitter", 0, 1)

    def __call__(self, failures: int, error: BaseException) -> float | None:
        if failures > self.limit:
            return None
        first, cap = float(self.first), float(self.cap)  # type: ignore[arg-type]
        # The exponent is bounded because 3.0 ** 10_000 raises OverflowError; the cap is reached long before.
        delay = min(cap, first * self.factor ** min(failures - 1, 64))
        return delay * (1.0 + random.uniform(-self.jitter, self.jitter))


def backoff_of(retry: object, max_retries: int | None, queue: str) -> Any:
    """Return the back-off that a handler was given: one, a number of retries, or none; raises InvalidHandler."""
    if max_retries is not None:
        if retry is not None:
            raise InvalidHandler(
                f"the handler of queue {queue!r} has retry={retry!r} and max_retries={max_retries!r}: give one of them"
            )
        return exponential(limit=whole(max_retries, "max_retries", 0, _RETRIES_MOST))
    return exponential() if retry is None else read_backoff(retry, f"retry of queue {queue!r}")


def read_backoff(retry: object, what: str) -> Any:
    """Return a back-off that was given, or that of a number of retries; raises InvalidHandler."""
    if isinstance(retry, int) and not isinstance(retry, bool):
        return exponential(limit=whole(retry, "retry", 0, _RETRIES_MOST))
    for factory, call in _FACTORIES:
        if retry is factory:
            raise InvalidHandler(f"{what} is reliq.{factory.__name__}, which is not called: write reliq.{call}")
    if not callable(retry):
        raise InvalidHandler(
            f"{what} is {retry!r}: give a number of retries such as 3, or a back-off such as "
            'reliq.exponential(limit=3) or reliq.fixed("30s", limit=3)'
        )
    return retry


def rocketmq_levels() -> steps:
    """Return RocketMQ's retry schedule: levels 3 to 18 of its `messageDelayLevel`, so sixteen retries."""
    return steps(
        "10s", "30s", "1m", "2m", "3m", "4m", "5m", "6m", "7m", "8m", "9m", "10m", "20m", "30m", "1h", "2h",
    )  # fmt: skip


#: What makes back-offs, and how it is called.
_FACTORIES: tuple[tuple[Callable[..., Any], str], ...] = (
    (fixed, 'fixed("3s")'),
    (steps, 'steps("10s", "1m")'),
    (exponential, "exponential()"),
    (rocketmq_levels, "rocketmq_levels()"),
)
