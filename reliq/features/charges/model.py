"""What a run has cost."""

from collections.abc import Awaitable
from dataclasses import dataclass

from reliq.contract import values


@dataclass(frozen=True, slots=True)
class Charge:
    """What a run has cost so far, in tokens of the rate."""

    actual: int


class ChargeCalls:
    """What a message has for handlers that learn only later what they cost."""

    __slots__ = ()

    def charge(self, actual: int) -> Awaitable[None]:
        """Take from `rate` and `key_rate` what the run has cost, in place of `cost`; await it in async handlers.

        Raises LeaseLost once the run has ended.
        """
        asked = Charge(values.whole(actual, "actual", 0, values.MAX_COST))
        done: Awaitable[None] = self._holder().act(self, asked)  # type: ignore[attr-defined]
        return done
