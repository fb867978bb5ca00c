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
        """Take what the run has cost, not `cost`, from the rates; to be awaited. Raises LeaseLost once it has ended."""
        asked = Charge(values.whole(actual, "actual", 0, values.MAX_COST))
        done: Awaitable[None] = self._holder().act(self, asked)  # type: ignore[attr-defined]
        return done
