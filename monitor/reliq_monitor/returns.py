"""Returns: the messages of vanished consumers on the way back to their queues, in short turns."""

import contextlib
import logging
import math
import time
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field

from reliq import ops
from reliq.errors import ReliqError
from reliq.model import worker
from reliq.model.keys import QueueKeys, instance_of, owner_of, process_of
from reliq.ops import Op, Steps
from reliq.runtime.pieces import grouped
from reliq_monitor.attempts import each
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Gone, Survey, pages
from reliq_monitor.reclaim import Holders, Reclaimed, holders_by_process, note_not_alone, take_back

log = logging.getLogger("reliq.monitor")

_COMPANY = "company"  #: the part that notes what else a dead process held
_LEAST, _MOST = 0.05, 1.0  #: seconds for taking messages back before the other duties have their turn
_SHARE = 3  #: between these bounds, so many times as long as the others took: longer where Redis is distant
_NAMED = 5  #: processes in a line of the log
_A_CONSUMER = 0.02  #: seconds for one consumer before the next one has its turn


@dataclass(slots=True)
class Scan:
    """The result of one scan of all queues."""

    consumers: int = 0
    vanished: int = 0
    reclaimed: int = 0
    died: int = 0
    conflicts: int = 0
    processes: set[str] = field(default_factory=set)  #: host:pid of those whose messages were taken back

    def add(self, result: Reclaimed) -> None:
        self.reclaimed += result.returned
        self.died += result.died
        self.conflicts += result.conflicts


class Returns(Duty[Scan]):
    """Remembers the vanished consumers of the latest look until their messages are taken back."""

    name = "reclaim"
    effect = "messages of dead workers are not returned"
    optional_parts = (_COMPANY,)

    def __init__(self) -> None:
        self._gone: dict[tuple[str, str], Gone] = {}  #: by queue and consumer, in the order of their turns
        self._holders: dict[str, Holders] = {}  #: by process: its consumers in all queues
        self._elsewhere: dict[str, Holders | None] = {}  #: those in queues of other monitors; None: cannot be read
        self._noted = 0.0  #: the time of the latest look that was noted
        self._processes: dict[tuple[str, str], str] = {}  #: by queue and consumer: host and pid
        self._turned_at = math.inf  #: the end of the latest turn

    @property
    def pause(self) -> float:
        return 0.0 if self._gone else math.inf

    def keep(self, queues: Container[str]) -> None:
        """Leave the consumers of all other queues to the monitors that lead them."""
        self._gone = {one: gone for one, gone in self._gone.items() if one[0] in queues}

    def turn(self, survey: Survey) -> Steps[Scan]:
        """Take back messages of vanished consumers for a short time; the rest waits."""
        report, began = Scan(), time.monotonic()
        if survey.looked_at != self._noted:
            report = self._note(survey)
            yield from self._find_elsewhere(survey)
        until = time.monotonic() + max(_LEAST, min(_MOST, _SHARE * (began - self._turned_at)))
        while self._gone and time.monotonic() < until:
            one = next(iter(self._gone))
            if one not in self._processes:  # first: it is forgotten with the last of its messages
                yield from self._learn_processes()
            gone, process = self._gone.pop(one), self._processes.pop(one)
            yield from self._note_not_alone(survey, gone)
            result = yield from self._take_back(survey, gone, min(until, time.monotonic() + _A_CONSUMER))
            report.add(result)
            if result.returned or result.died:
                report.processes.add(process)
            if result.unfinished:
                self._gone[one], self._processes[one] = gone, process
        self._turned_at = time.monotonic() if self._gone else math.inf
        if report.reclaimed or report.died:
            log.info(
                "reclaimed=%d died=%d conflicts=%d vanished=%d from=%s",
                report.reclaimed, report.died, report.conflicts, report.vanished, _named(report.processes),
            )  # fmt: skip
        return report

    def _note(self, survey: Survey) -> Scan:
        """Note those that have vanished."""
        self._noted = survey.looked_at
        gone = {(one.keys.queue, one.vanished.consumer): one for one in survey.gone}
        # Consumers already in line stay in front.
        self._gone = {one: gone[one] for one in (*(old for old in self._gone if old in gone), *gone)}
        self._processes = {one: process for one, process in self._processes.items() if one in self._gone}
        self._holders = holders_by_process([(keys, leases) for keys, _, leases in survey.consumers], gone)
        self._elsewhere = {process: some for process, some in self._elsewhere.items() if process in self._holders}
        for duty in (self.name, _COMPANY):
            survey.attempts.nothing_to_do(duty, survey.queues, but={consumer for _, consumer in gone})
        if not gone:
            survey.attempts.nothing_for_all(_COMPANY)
        return Scan(sum(len(leases) for _, _, leases in survey.consumers), len(gone))

    def _find_elsewhere(self, survey: Survey) -> Steps[None]:
        """Find the consumers that the vanished processes have in the queues of other monitors."""
        processes = self._holders.keys() - self._elsewhere.keys()
        if not processes:
            return
        others, found = survey.others, None
        if others is not None:
            found = yield from survey.attempts.of_all(
                _COMPANY, _consumers_in(others, processes), None, other_server=True
            )
        for process in processes:
            self._elsewhere[process] = None if found is None else found.get(process, ())

    def _note_not_alone(self, survey: Survey, gone: Gone) -> Steps[None]:
        """Note the other messages of a process, once, before any of them is taken back."""
        consumer = gone.vanished.consumer
        process = process_of(consumer)
        here, elsewhere = self._holders.pop(process, ()), self._elsewhere.get(process, ())
        if here and (elsewhere is None or len(here) + len(elsewhere) > 1):
            steps = _note([*here, *(elsewhere or ())], elsewhere is not None, (gone.keys, consumer))
            yield from survey.attempts.of_queue(_COMPANY, gone.keys, steps, None, consumer, other_server=True)

    def _learn_processes(self) -> Steps[None]:
        """Read host and pid of the processes of those that are next; one that never said who it is has its id."""
        page = next(pages([one for one in self._gone.items() if one[0] not in self._processes]))
        texts: Sequence[bytes | None] = [None] * len(page)
        with contextlib.suppress(ReliqError):  # their messages matter more
            texts = yield [ops.description(gone.keys, consumer) for (_, consumer), gone in page]
        for (one, _), text in zip(page, texts, strict=True):
            self._processes[one] = _process(*one, text)

    def _take_back(self, survey: Survey, gone: Gone, until: float) -> Steps[Reclaimed]:
        keys, vanished = gone.keys, gone.vanished
        steps = take_back(keys, vanished.consumer, vanished.known_dead, until)
        result = yield from survey.attempts.of_queue(self.name, keys, steps, Reclaimed(), vanished.consumer)
        if survey.measurements is not None and instance_of(keys.queue) is None:  # those are too many for a label
            gone_for = (gone.seen_at - vanished.since) / 1000 + time.monotonic() - gone.looked_at
            survey.measurements.recovered(keys.logical, gone_for, result.returned + result.died)
        return result


def _process(queue: str, consumer: str, text: bytes | None) -> str:
    process = worker.read(queue, consumer, text, None, 0).process
    return f"{process.host}:{process.pid}" if process else owner_of(consumer)


def _named(processes: Collection[str]) -> str:
    names = sorted(processes)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ",".join(names[:_NAMED]) + more


def _note(holders: Holders, all_known: bool, gone: tuple[QueueKeys, str]) -> Steps[None]:
    """Note what else the process of a consumer held; where that cannot be read, that it may have held more."""
    try:
        yield from note_not_alone(holders, all_known)
    except ReliqError:
        yield from note_not_alone([gone], all_known=False)
        raise


def _consumers(keys: QueueKeys) -> Op[list[str]]:
    return ops.members(keys.consumers)


def _consumers_in(survey: Survey, processes: Collection[str]) -> Steps[dict[str, Holders]]:
    """Return the consumers of these processes, by process."""
    found: list[tuple[QueueKeys, str]] = []
    for page in pages((yield from survey.having(_COMPANY, lambda keys: keys.consumers, survey.queues))):
        for keys, consumers in (yield from survey.attempts.together(_COMPANY, page, each(_consumers))):
            found += [(keys, consumer) for consumer in consumers if process_of(consumer) in processes]
    return dict(grouped((process_of(consumer), (keys, consumer)) for keys, consumer in found))
