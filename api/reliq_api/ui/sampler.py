"""The history for the sparklines: the statistics of all queues, kept in this process.

They are read every two seconds while a page that shows them is open, and every thirty seconds otherwise: a service
whose dashboard is closed costs Redis little. Nothing is written to Redis. A restart begins a new history, and each API
process has its own.
"""

import asyncio
import logging
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from reliq.errors import ReliqError
from reliq.model.stats import Stats
from reliq.ops.schema import Counter
from reliq.protocol.partial_reads import every_queue
from reliq.protocol.stats import read_readable
from reliq.runtime.looking import Missing, looking
from reliq.transport.aiostore import AioStore
from reliq_api.http.problems import of_error

log = logging.getLogger("reliq.api.ui")

PERIOD = 2.0  #: seconds between two samples while a page is open
LOOK = 60.0  #: seconds for which a page counts as open after its latest request
STALE = 5 * PERIOD  #: seconds after which the latest sample is old
SHARE = 0.1  #: the largest share of time for sampling: with very many queues the period grows
FINE = 150  #: samples kept at full resolution: 5 minutes
COARSE = 240  #: samples kept of every 30 seconds: 2 hours
COARSE_EVERY = 15  #: periods between two of these; also between two samples while no page is open
QUEUES_LARGEST = 1000  #: queues with a history; about 34 MB

MEASURES = ("at", "ready", "processing", "delayed", "dead", "oldest", "into", "out", "failed")

_FAILURES = (Counter.RETRIED, Counter.RECLAIMED, Counter.DEAD_LETTERED)


class Ring:
    """The latest `length` rows of numbers."""

    def __init__(self, length: int, width: int) -> None:
        self._cells = array("d", bytes(8 * length * width))
        self._length, self._width = length, width
        self._rows = 0

    def append(self, row: Sequence[float]) -> None:
        start = self._rows % self._length * self._width
        self._cells[start : start + self._width] = array("d", row)
        self._rows += 1

    def column(self, place: int) -> list[float]:
        """Return one column of all rows, oldest first."""
        cells = self._cells[place :: self._width]
        if self._rows < self._length:
            return list(cells[: self._rows])
        oldest = self._rows % self._length
        return [*cells[oldest:], *cells[:oldest]]


class Series(Ring):
    """The latest measures of one queue."""

    def __init__(self, length: int) -> None:
        super().__init__(length, len(MEASURES))
        self.at = float("-inf")  #: of the latest ones
        self._counts = (0, 0, 0)

    def add(self, at: float, stats: Stats) -> None:
        count = stats.counters.get
        counts = count(Counter.ENQUEUED, 0), count(Counter.ACKED, 0), sum(count(name, 0) for name in _FAILURES)
        rates = [0.0, 0.0, 0.0]
        if at > self.at:
            # Never below 0: the counters start again after Redis was emptied. 0 at first: since for ever.
            rates = [max(0.0, (new - old) / (at - self.at)) for new, old in zip(counts, self._counts, strict=True)]
        gauges = (at, stats.ready, stats.processing, stats.delayed, stats.dead, stats.oldest_ready_age)
        self.append([*gauges, *rates])
        self.at, self._counts = at, counts


class History:
    """The statistics of one queue over time."""

    def __init__(self) -> None:
        self.latest: Stats | None = None
        self._fine, self._coarse = Series(FINE), Series(COARSE)

    def add(self, at: float, stats: Stats) -> None:
        self._fine.add(at, stats)
        if at - self._coarse.at > (COARSE_EVERY - 0.5) * PERIOD:
            self._coarse.add(at, stats)
        self.latest = stats

    def column(self, measure: str, coarse: bool = False) -> list[float]:
        return (self._coarse if coarse else self._fine).column(MEASURES.index(measure))


class Sampler:
    """Reads the statistics of all queues periodically; a context that lasts as long as the service."""

    def __init__(self, store: AioStore, period: float = PERIOD) -> None:
        self.histories: dict[str, History] = {}
        self.sampled_at = float("-inf")  #: of the monotonic clock
        self.error = ""  #: why the latest attempt failed
        self.missing = Missing()  #: what did not answer at the latest sample
        self._known: list[str] = []  #: queues
        self._store = store
        self._period = period
        self._looked = asyncio.Event()
        self._looked_at = float("-inf")  #: of the monotonic clock
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="reliq-ui-sampler")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            started = time.monotonic()
            try:
                await self.sample()
                self.error = ""
            except ReliqError as error:  # the plots get a gap, the pages say why
                self.error = of_error(error).detail
            except Exception:  # a fault of the service must not end the history
                log.exception("the dashboard could not read the queues")
                self.error = "The queues could not be read; the log of the service says more."
            took = time.monotonic() - started
            await asyncio.sleep(max(self._period - took, took / SHARE - took))
            if not self._watched:
                self._looked.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._looked.wait(), (COARSE_EVERY - 1) * self._period)

    @property
    def _watched(self) -> bool:
        return time.monotonic() - self._looked_at < LOOK

    def note_look(self) -> None:
        """Note a request of a page that shows the plots."""
        self._looked_at = time.monotonic()
        self._looked.set()

    async def refresh(self) -> None:
        """Note a request of the first page, and read the queues now if the latest sample is too old to be shown.

        Raises ReliqError if Redis is away and nothing was ever read: numbers that are there stay, with their age.
        """
        oldest = STALE if self._watched else self._period
        self.note_look()
        if self.histories and self.age <= oldest:
            return
        try:
            await self.sample()
        except ReliqError:
            if not self.histories:
                raise

    async def sample(self) -> None:
        """Add one sample to every queue's history."""
        with looking() as self.missing:
            self._known = await self._store.run(every_queue(self._known))
            names = self._known[:QUEUES_LARGEST]
            found, _ = await self._store.run(read_readable(names))
        now = time.monotonic()
        for name in {*self.histories} - {stats.queue for stats in found}:
            self.histories[name].latest = None
        for stats in found:
            history = self.histories.setdefault(stats.queue, History())
            if stats.unseen:  # counters of a part would look like a reset
                history.latest = stats
            else:
                history.add(now, stats)
        for name in self.histories.keys() - set(names):
            del self.histories[name]
        self.sampled_at = now

    @property
    def age(self) -> float:
        """Seconds since the latest sample."""
        return time.monotonic() - self.sampled_at
