"""The monitor's loop: every duty in turn, for as long as it is the leader.

Any number of monitors is correct; the leader's key only saves the others the work.
"""

import logging
import secrets
import threading
import time
from dataclasses import dataclass

from reliq import ops, settings
from reliq.errors import QueueFull, RedisUnsuitable, ReliqError
from reliq.keys import LEADER, QueueKeys, instance_of
from reliq.observe import Measurements
from reliq.ops import Steps
from reliq.outage import Outage
from reliq.store import Store
from reliq_monitor.instances import Instances
from reliq_monitor.liveness import Leases, Liveness, read_leases
from reliq_monitor.looking import TOGETHER, Groups, having, pages
from reliq_monitor.promote import promote_due
from reliq_monitor.reclaim import Reclaimed, take_back
from reliq_monitor.retention import forget_producers, forget_streams, trim_dead_letters
from reliq_monitor.staged import finish_staged
from reliq_monitor.undecided import ask_undecided

log = logging.getLogger("reliq.monitor")

_LEADER_FOR = 0.8  #: seconds the leader's key lasts; renewed at every scan
_PROMOTE_EVERY = 0.04  #: seconds; what is due later than the next look is known, and promoted when it is due
_PROMOTE_PER_QUEUE = 0.0002  #: seconds added for each queue, so that a thousand of them do not keep a core busy
_LOOKS_A_TICK = 8  #: at most in that time, however many messages are about to be due
_RETENTION_EVERY = 10.0


@dataclass(slots=True)
class Scan:
    """What one scan of all queues did."""

    consumers: int = 0
    vanished: int = 0
    reclaimed: int = 0
    died: int = 0
    conflicts: int = 0


class Monitor:
    """Scans, promotes and tidies up. `run` it, or call its duties one at a time."""

    def __init__(
        self,
        store: Store,
        scan_interval: float = settings.SCAN_INTERVAL,
        measurements: Measurements | None = None,
    ) -> None:
        self._store = store
        self._measurements = measurements
        self._link = store.link("reliq-monitor")
        self._interval = scan_interval
        self._id = secrets.token_hex(8)
        self._liveness = Liveness()
        self._instances = Instances()
        self._client_list_refused = False
        self._names: list[str] = []
        self._groups: Groups = ()
        self._instance_queues: list[QueueKeys] = []
        self.last_scan_at = 0.0  #: seconds since the epoch
        self.last_scan_took = 0.0  #: seconds
        self.leading = False

    def scan(self) -> Scan:
        """Look at every consumer of every queue once, and take back what the vanished ones held."""
        started = time.monotonic()
        report = self._store.run(self._scan(), self._link)
        self.last_scan_at, self.last_scan_took = time.time(), time.monotonic() - started
        if report.reclaimed or report.died:
            log.info(
                "reclaimed=%d died=%d conflicts=%d vanished=%d",
                report.reclaimed, report.died, report.conflicts, report.vanished,
            )  # fmt: skip
        return report

    def promote(self) -> tuple[int, float | None]:
        """Make ready what is due; how many, and the seconds until the next is due (None: not before the next look)."""
        return self._store.run(promote_due(self._known_queues(), self._tick), self._link)

    def finish_staged(self) -> int:
        """Finish staged jobs whose leader died; how many messages became visible."""
        moved = self._store.run(finish_staged(self._known_queues()), self._link)
        if moved:
            log.info("made visible=%d messages of committed jobs", moved)
        return moved

    def ask_undecided(self) -> tuple[int, int]:
        """Have overdue prepared messages asked about; how many were, and how many died of too many questions."""
        asked, died = self._store.run(ask_undecided(self._known_queues()), self._link)
        if asked or died:
            log.info("prepared asked=%d died=%d", asked, died)
        return asked, died

    def tidy(self) -> None:
        """Trim dead letters as the queues' policies say, and forget producers that fell silent."""
        groups = self._known_queues()
        for duty in (trim_dead_letters, forget_producers, forget_streams):
            self._store.run(duty(groups), self._link)

    def _known_queues(self) -> Groups:
        if not self._groups:
            self._store.run(self._learn_queues(), self._link)
        return self._groups

    def _learn_queues(self) -> Steps[None]:
        names = yield ops.queue_names()
        if names != self._names:
            every = [QueueKeys(name) for name in names]
            together = 1 if self._store.sharded else TOGETHER
            self._groups = [every[start : start + together] for start in range(0, len(every), together)]
            self._names = names
            self._instance_queues = [keys for keys in every if instance_of(keys.queue)]

    def _scan(self) -> Steps[Scan]:
        yield from self._learn_queues()
        report = Scan()
        self._liveness.connections((yield from self._clients()), self._link.connected_at)
        watched = yield from having(self._groups, lambda keys: keys.consumers)
        for some in pages(watched):
            now, found = yield from read_leases(some)
            for keys, leases in found:
                yield from self._scan_queue(keys, leases, now, report)
        inhabited = {keys.queue for group in watched for keys in group}
        for keys in self._instance_queues:
            yield from self._instances.look(keys, alone=keys.queue not in inhabited)
        return report

    def _scan_queue(self, keys: QueueKeys, leases: Leases, now: int, report: Scan) -> Steps[None]:
        looked = time.monotonic()
        report.consumers += len(leases)
        for gone in self._liveness.look(keys.queue, leases, now):
            report.vanished += 1
            result: Reclaimed = yield from take_back(keys, gone.consumer, gone.known_dead)
            report.reclaimed += result.returned
            report.died += result.died
            report.conflicts += result.conflicts
            if self._measurements is not None:
                gone_for = (now - gone.since) / 1000 + time.monotonic() - looked
                self._measurements.recovered(keys.queue, gone_for, result.returned + result.died)

    def _clients(self) -> Steps[bytes | None]:
        if self._client_list_refused:
            return None
        try:
            answer: bytes = yield ops.command("CLIENT", "LIST")
            return answer
        except RedisUnsuitable:  # some managed services: the lease alone decides
            self._client_list_refused = True
            return None

    def _lead(self) -> Steps[bool]:
        milliseconds = ops.milliseconds(max(_LEADER_FOR, 1.6 * self._interval))
        try:
            if (yield ops.command("SET", LEADER, self._id, "NX", "PX", milliseconds)):
                return True
        except QueueFull:  # a full Redis takes no new key, and needs its monitors most: they all lead
            return True
        holder = yield ops.command("GET", LEADER)
        if holder != self._id.encode():
            return False
        yield ops.command("PEXPIRE", LEADER, milliseconds)
        return True

    def run(self, stopping: threading.Event) -> None:
        """Do every duty when its time comes, until `stopping` is set. Redis being away is waited out."""
        next_scan = next_tidy = 0.0
        outage = Outage(log, "monitor")
        while not stopping.is_set():
            pause = self._interval
            try:
                now = time.monotonic()
                if now >= next_scan:
                    new, self.leading = not self.leading, self._store.run(self._lead(), self._link, timeout=0)
                    # A new leader knows nothing of who was there: the second look, which decides, comes soon.
                    next_scan = now + (self._interval / 2 if new and self.leading else self._interval)
                    if self.leading:
                        self.scan()
                        self.finish_staged()
                        self.ask_undecided()
                if self.leading and now >= next_tidy:
                    next_tidy = now + _RETENTION_EVERY
                    self.tidy()
                if self.leading:
                    pause = self._promote_pause()
            except ReliqError as error:
                outage.failed(error)
            except Exception:
                log.exception("a duty of the monitor failed")
            else:
                outage.over()
            stopping.wait(max(0.0, min(pause, next_scan - time.monotonic())))
        self._link.close()

    def _promote_pause(self) -> float:
        """Promote, and answer how long to wait before doing it again."""
        promoted, next_due = self.promote()
        if promoted and next_due == 0.0:
            return 0.0
        return self._tick if next_due is None else min(self._tick, max(next_due, self._tick / _LOOKS_A_TICK))

    @property
    def _tick(self) -> float:
        """Seconds between two looks at what is delayed."""
        return _PROMOTE_EVERY + _PROMOTE_PER_QUEUE * len(self._names)


class MonitorThread(threading.Thread):
    """A monitor inside another process, such as a worker."""

    def __init__(
        self,
        store: Store,
        scan_interval: float = settings.SCAN_INTERVAL,
        measurements: Measurements | None = None,
    ) -> None:
        super().__init__(name="reliq-monitor", daemon=True)
        self.monitor = Monitor(store, scan_interval, measurements)
        self._stopping = threading.Event()

    def run(self) -> None:
        self.monitor.run(self._stopping)

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._stopping.set()
        self.join(timeout=10)
