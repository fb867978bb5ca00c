"""What a rate allows: a bucket of tokens that fills with time. Messages take their costs, charges correct them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_EPSILON = 1e-6


@dataclass(slots=True)
class Bucket:
    """A bucket: `most` tokens, a new one each `each` seconds. It is known by when it is full again."""

    each: float
    most: int
    full_at: float = 0.0

    @classmethod
    def of(cls, rate: str, burst: int | None = None, full_at: float = 0.0) -> "Bucket":
        """Return the bucket of a rate; without a burst it holds the tokens of a tenth of a second, at least one."""
        count, unit = rate.split("/")
        each = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}[unit] / float(count)
        return cls(each, burst or max(1, math.ceil(100 / (each * 1000))), full_at)

    def tokens(self, now: float) -> int:
        """Return the whole tokens there are; less than 0: so many are to be paid for before anything starts."""
        return int((self.most - max(0.0, self.full_at - now) / self.each + _EPSILON) // 1)

    def admits(self, costs: Sequence[int], now: float) -> bool:
        """Whether messages with these costs may start at once. One that costs more than a full bucket takes all."""
        if not costs:
            return True
        last = max(costs)
        return self.tokens(now) - (sum(costs) - last) >= min(last, self.most)

    def spend(self, tokens: int, now: float) -> None:
        """Take tokens, also more than there are; a negative number gives back what a run did not need."""
        if tokens > 0:
            self.full_at = max(self.full_at, now) + tokens * self.each
        else:
            self.full_at = max(now, self.full_at + tokens * self.each)


Line = tuple[str, str] | None  #: of a key, by its kind and text


class Rates:
    """The buckets of a queue, by its settings, and of each key: each message takes of both."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._full_at: dict[Line, float] = {}

    def admit(self, line: Line, costs: Sequence[int], now: float) -> bool:
        """Whether messages of a key with these costs may start at once."""
        return all(bucket.admits(costs, now) for _, bucket in self._of(line))

    def spend(self, line: Line, tokens: int, now: float) -> None:
        """A message of a key takes tokens, or gives some back."""
        for of, bucket in self._of(line):
            bucket.spend(tokens, now)
            self._full_at[of] = bucket.full_at

    def _of(self, line: Line) -> Iterator[tuple[Line, Bucket]]:
        rate, key_rate = self._settings["rate"], self._settings["key_rate"]
        if rate:
            yield None, Bucket.of(rate, self._settings["burst"], self._full_at.get(None, 0.0))
        if key_rate and line is not None and line[0] != "latest":
            yield line, Bucket.of(key_rate, full_at=self._full_at.get(line, 0.0))
