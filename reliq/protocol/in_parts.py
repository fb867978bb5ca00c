"""Steps that a monitor runs a part at a time: what else is due does not wait for all of them."""

import math
import sys
import time
from typing import Any, Generic, TypeVar

from reliq.ops import Steps

T = TypeVar("T")


class InParts(Generic[T]):
    """Steps that are run in parts. `result`: what they have returned; None until then."""

    def __init__(self, steps: Steps[T]) -> None:
        self.result: T | None = None
        self._steps = steps
        self._answer: Any = None

    def go_on(self, calls: int = sys.maxsize, until: float = math.inf) -> Steps[bool]:
        """Run the steps on, for up to so many calls, and one at least; return whether they have ended.

        No call begins after `until`, by time.monotonic().
        """
        for _ in range(calls):
            try:
                request = self._steps.send(self._answer)
            except StopIteration as end:
                self.result = end.value
                return True
            self._answer = yield request
            if time.monotonic() >= until:
                break
        return False
