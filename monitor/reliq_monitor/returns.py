"""Returns: the vanished consumers of a monitor's queues, and their messages on the way back, in short turns."""

import logging
import math
import time
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys, process_of
from reliq.observability.histograms import Measurements
from reliq.ops import Steps
from reliq_monitor.attempts import Attempts
from reliq_monitor.liveness import Leases, Liveness, Vanished
from reliq_monitor.queue_scan import Survey, pages
from reliq_monitor.reclaim import Holders, Reclaimed, holders_by_process, note_company, take_back

log = logging.getLogger("reliq.monitor")

_A_CONSUMER = 0.02  #: seconds for one consumer before the next one has its turn


@dataclass(slots=True)
class Scan:
    """The result of one scan of all queues."""

    consumers: int = 0
    vanished: int = 0
    reclaimed: int = 0
    died: int = 0
    conflicts: int = 0

    def add(self, result: Reclaimed) -> None:
        self.reclaimed += result.returned
        self.died += result.died
        self.conflicts += result.conflicts


@dataclass(frozen=True, slots=True)
class _Gone:
    """A vanished consumer with messages to take back."""

    keys: QueueKeys
    vanished: Vanished
    seen_at: int  #: ms of the server's clock, when it was found to be gone
    looked_at: float  #: the same moment, by time.monotonic()


class Returns:
    """Remembers the vanished consumers of the latest scan until their messages are taken back."""

    def __init__(self, attempts: Attempts, measurements: Measurements | None, liveness: Liveness) -> None:
        self._attempts = attempts
        self._measurements = measurements
        self._liveness = liveness
        self._gone: dict[tuple[str, str], _Gone] = {}  #: by queue and consumer, in the order of their turns
        self._holders: dict[str, Holders] = {}  #: by process: its consumers in all queues
        self._company: dict[str, Holders | None] = {}  #: those in queues of other monitors; None: cannot be read
        self._looked = Scan()

    @property
    def waiting(self) -> bool:
        """Whether there are messages to take back."""
        return bool(self._gone)

    def keep(self, queues: Container[str]) -> None:
        """Leave the consumers of all other queues to the monitors that lead them."""
        self._gone = {one: gone for one, gone in self._gone.items() if one[0] in queues}

    def note(self, looked: Sequence[tuple[QueueKeys, int, Leases]], queues: Sequence[QueueKeys]) -> None:
        """Find those that vanished among the consumers of a scan: their queue, the server's time, their leases."""
        self._looked, gone = Scan(), dict[tuple[str, str], _Gone]()
        for keys, now, leases in looked:
            self._looked.consumers += len(leases)
            for vanished in self._liveness.look(keys.queue, leases, now):
                gone[keys.queue, vanished.consumer] = _Gone(keys, vanished, now, time.monotonic())
        self._looked.vanished = len(gone)
        # Consumers already in line stay in front.
        self._gone = {one: gone[one] for one in (*(old for old in self._gone if old in gone), *gone)}
        self._holders = holders_by_process([(keys, leases) for keys, _, leases in looked], gone)
        self._company = {process: some for process, some in self._company.items() if process in self._holders}
        for duty in ("reclaim", "company"):
            self._attempts.nothing_to_do(duty, queues, but={consumer for _, consumer in gone})

    def find_company(self, others: Callable[[], Survey | None]) -> Steps[None]:
        """Find the consumers that the vanished processes have in the queues of other monitors.

        `others` returns these queues; None: some of them cannot be read now.
        """
        processes = self._holders.keys() - self._company.keys()
        if not processes:
            return
        survey = others()
        found = None
        if survey is not None:
            found = yield from self._attempts.of_all("company", _consumers_in(survey, processes), None, elsewhere=True)
        for process in processes:
            self._company[process] = None if found is None else found.get(process, ())

    def take_back(self, run: Callable[[Steps[Any]], Any], seconds: float) -> Scan:
        """Take back the messages of vanished consumers in turns, for about `seconds`; the rest waits."""
        report, until = self._looked, time.monotonic() + seconds
        self._looked = Scan()
        while self._gone and time.monotonic() < until:
            one = next(iter(self._gone))
            gone = self._gone.pop(one)
            run(self._note_company(gone))
            slice_until = min(until, time.monotonic() + (_A_CONSUMER if seconds < math.inf else math.inf))
            result: Reclaimed = run(self._take_back(gone, slice_until))
            report.add(result)
            if result.unfinished:
                self._gone[one] = gone
        if report.reclaimed or report.died:
            log.info(
                "reclaimed=%d died=%d conflicts=%d vanished=%d",
                report.reclaimed, report.died, report.conflicts, report.vanished,
            )  # fmt: skip
        return report

    def _note_company(self, gone: _Gone) -> Steps[None]:
        """Note the other messages of a process, once, before any of them is taken back."""
        consumer = gone.vanished.consumer
        process = process_of(consumer)
        here, elsewhere = self._holders.pop(process, ()), self._company.get(process, ())
        if here and (elsewhere is None or len(here) + len(elsewhere) > 1):
            steps = _note([*here, *(elsewhere or ())], elsewhere is not None, (gone.keys, consumer))
            yield from self._attempts.of_queue("company", gone.keys, steps, None, consumer, elsewhere=True)

    def _take_back(self, gone: _Gone, until: float) -> Steps[Reclaimed]:
        keys, vanished = gone.keys, gone.vanished
        steps = take_back(keys, vanished.consumer, vanished.known_dead, until)
        result = yield from self._attempts.of_queue("reclaim", keys, steps, Reclaimed(), vanished.consumer)
        if self._measurements is not None:
            gone_for = (gone.seen_at - vanished.since) / 1000 + time.monotonic() - gone.looked_at
            self._measurements.recovered(keys.queue, gone_for, result.returned + result.died)
        return result


def _note(holders: Holders, all_known: bool, gone: tuple[QueueKeys, str]) -> Steps[None]:
    """Note the company of a consumer that is gone; where the others cannot be read, that it may have some."""
    try:
        yield from note_company(holders, all_known)
    except ReliqError:
        yield from note_company([gone], all_known=False)
        raise


def _consumers_in(survey: Survey, processes: Collection[str]) -> Steps[dict[str, Holders]]:
    """Return the consumers of these processes, by process."""

    def ask(some: Sequence[QueueKeys]) -> Steps[list[list[str]]]:
        answers: list[list[str]] = yield [ops.members(keys.consumers) for keys in some]
        return answers

    found: dict[str, list[tuple[QueueKeys, str]]] = {}
    for page in pages((yield from survey.having("company", lambda keys: keys.consumers, survey.queues))):
        for keys, consumers in (yield from survey.attempts.together("company", page, ask)):
            for consumer in consumers:
                if (process := process_of(consumer)) in processes:
                    found.setdefault(process, []).append((keys, consumer))
    return dict(found)
