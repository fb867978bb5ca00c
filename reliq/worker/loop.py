"""The loop of one queue in a worker: it repeats a step, on a thread of its own, until it is stopped.

The step is that of an `InlineLoop` or of a `PooledLoop`. Both are made of the same two parts: the `Exchange` with Redis
and the `Runner` of the handler.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from reliq.errors import ReliqError
from reliq.observability.histograms import Measurements
from reliq.runtime.outage_log import OutageLog
from reliq.worker.exchange import Exchange
from reliq.worker.runner import Runner
from reliq.worker.trials import Trials

log = logging.getLogger("reliq.worker")

PAUSED_LOOK = 0.2  #: seconds between two looks of a paused loop whether it goes on
_RETRY_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  #: seconds while Redis is away


class Loop(Protocol):
    """A loop, as the worker and its watchdog see it."""

    exchange: Exchange
    runner: Runner
    stopping: bool  #: set by the worker: hand back messages that have not started, finish running ones

    def step(self) -> bool:
        """Settle finished messages, claim the next ones, and run or start them.

        Return True if the loop rests: its thread ends, and another one may have it already.
        """

    def busy(self) -> bool:
        """Whether a handler runs, or is about to, outside of `step`."""


class Shared:
    """The state shared by the loops of one process."""

    def __init__(self, measurements: Measurements | None = None) -> None:
        self.measurements = measurements  #: measurements of the runs, if wanted
        self.turn = threading.Lock()  #: with one thread, only one loop runs handlers at a time
        self.working: set[Loop] = set()  #: loops with a thread: the others rest
        self.rest: Callable[[Loop], bool] = lambda _: False  #: leaves the waiting to the watch: see worker.idle
        self.trials = Trials()


def run_loop(loop: Loop) -> bool:
    """Repeat the loop's step until it rests, or until it is `stopping` and everything is settled; then it leaves.

    Return whether it rests.
    """
    loop.runner.begin_here()
    failures, outage = 0, OutageLog(log, f"queue={loop.runner.handler.queue}")
    while not (loop.stopping and loop.exchange.leave(loop.busy)):
        try:
            rests = loop.step()
            failures = 0
            outage.over()
            if rests:
                return True
        except ReliqError as error:
            outage.failed(error)
            time.sleep(_RETRY_PAUSES[min(failures, len(_RETRY_PAUSES) - 1)])
            failures += 1
            if loop.stopping and failures > len(_RETRY_PAUSES):
                break
    loop.exchange.close()
    return False
