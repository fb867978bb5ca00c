"""The monitor's loop: every duty in turn, for as long as it is the leader.

Any number of monitors is correct; the leader's key only saves work. Each duty of each queue fails alone
(`attempts`), and does a bounded amount of work in a turn.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from reliq import ops
from reliq.errors import QueueFull, RedisUnsuitable, ReliqError
from reliq.model import settings
from reliq.model.keys import JobKeys, QueueKeys, instance_of, process_of
from reliq.observability.histograms import Measurements
from reliq.ops import Steps
from reliq.ops.topology import Slots
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq_monitor.attempts import Attempts
from reliq_monitor.batches import end_batches
from reliq_monitor.broadcast_cleanup import BroadcastCleanup
from reliq_monitor.liveness import OUTAGE_GRACE, ClockWatch, Liveness, Vanished, boot_time, read_leases
from reliq_monitor.prepared_timeouts import ask_undecided
from reliq_monitor.promote import promote_due
from reliq_monitor.queue_scan import TOGETHER, Survey, pages
from reliq_monitor.reclaim import Holders, Reclaimed, deaths, holders_by_process, note_company, take_back
from reliq_monitor.retention import forget_producers, forget_streams, trim_dead_letters
from reliq_monitor.schedules import Schedules
from reliq_monitor.staged import finish_staged

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")

_LEADER_FOR = 0.8  #: seconds the leader's key lasts; renewed at every scan
_PROMOTE_EVERY = 0.04  #: seconds; a message known to be due before the next look is promoted when it is due
_PROMOTE_PER_QUEUE = 0.0002  #: seconds added for each queue, so that a thousand of them do not keep a core busy
_LOOKS_A_TICK = 8  #: the most looks in that time, however many messages are about to be due
_RETENTION_EVERY = 10.0
_RECLAIM_A_TURN = 0.05  #: seconds for taking messages back before the other duties have their turn
_RECLAIM_A_CONSUMER = 0.02  #: seconds for one consumer before the next one has its turn
_PAUSE = 3.0  #: seconds by which a turn may come late before this process counts as paused


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


class Monitor:
    """Performs the monitor's duties: all of them in `run`, or single ones by their methods."""

    def __init__(
        self,
        store: Store,
        scan_interval: float = settings.SCAN_INTERVAL,
        measurements: Measurements | None = None,
        reconnect_grace: settings.Duration = settings.RECONNECT_GRACE,
    ) -> None:
        self._store = store
        self._measurements = measurements
        self._connection = store.connection("reliq-monitor")
        self._interval = scan_interval
        self._patience: float | None = None  #: seconds a call is repeated; in the loop the next turn repeats it
        self._id = secrets.token_hex(8)
        self._liveness = Liveness(settings.seconds(reconnect_grace, "reconnect_grace"))
        self._clock = ClockWatch(boot_time)
        self._attempts = Attempts(self._node_of, store.sharded)
        self._instances = BroadcastCleanup()
        self._schedules = Schedules(self._attempts, measurements)
        self._client_list_refused = False
        self._names: list[str] = []
        self._survey = Survey(self._attempts, at_once=1 if store.sharded else TOGETHER)
        self._instance_queues: list[QueueKeys] = []
        self._gone: dict[tuple[str, str], _Gone] = {}  #: by queue and consumer, in the order of their turns
        self._holders: dict[str, Holders] = {}  #: by process: its consumers in all queues
        self._looked = Scan()
        self._started_at: float | None = None
        self._slots: Slots | None = None
        self._next_scan = self._next_tidy = 0.0
        self.last_scan_at = 0.0  #: seconds since the epoch: the end of the latest turn in which every duty ran
        self.last_scan_took = 0.0  #: seconds
        self.leading = False
        self.clock_jumps = 0  #: of the Redis server

    @property
    def failures(self) -> dict[str, int]:
        """Failed attempts by duty since the start."""
        return dict(self._attempts.failures)

    @property
    def failing(self) -> AbstractSet[tuple[str, str]]:
        """The duties that fail now, each with its queue; an empty text means all queues."""
        return self._attempts.failing

    # --- one duty at a time ---

    def scan(self) -> Scan:
        """Check every consumer of every queue once, and take back the messages of vanished ones."""
        self._look()
        return self._reclaim(math.inf)

    def promote(self) -> tuple[int, float | None]:
        """Promote due messages; return how many, and the seconds until the next is due (None: after the next look)."""
        self._know_queues()
        return self._run(promote_due(self._survey, self._tick))

    def finish_staged(self) -> int:
        """Finish staged jobs with a dead leader; return how many messages became visible."""
        self._know_queues()
        moved = self._run(finish_staged(self._survey))
        if moved:
            log.info("made visible=%d messages of committed jobs", moved)
        return moved

    def ask_undecided(self) -> tuple[int, int]:
        """Put questions about overdue prepared messages; return how many, and how many messages died undecided."""
        self._know_queues()
        asked, died = self._run(ask_undecided(self._survey))
        if asked or died:
            log.info("prepared asked=%d died=%d", asked, died)
        return asked, died

    def end_batches(self) -> int:
        """Send what follows the batches with messages that have all ended; return how many batches that were."""
        return self._run(end_batches(self._attempts))

    def send_ticks(self) -> int:
        """Send the due ticks of schedules, and prepare the next ones; return how many messages were sent."""
        self._know_queues()
        (scheduled,) = self._run(self._survey.having_each("scan", (lambda keys: keys.ticks,), self._survey.queues))
        self._schedules.found_in(scheduled)
        return self._run(self._schedules.turn(self._survey))

    def tidy(self) -> bool:
        """Trim dead letters as the queues' policies say, and forget producers that fell silent.

        Return whether more is left to trim than one turn allows.
        """
        self._know_queues()
        _, more = self._run(trim_dead_letters(self._survey))
        if not more:
            self._run(forget_producers(self._survey))
            self._run(forget_streams(self._survey))
        return more

    # --- scan ---

    def _look(self) -> None:
        """Find vanished consumers; `_reclaim` takes back their messages."""
        started = time.monotonic()
        self._attempts.prune()
        self._run(self._scan())
        self.last_scan_took = time.monotonic() - started
        if not any(queue == "" for _, queue in self.failing):
            self.last_scan_at = time.time()

    def _scan(self) -> Steps[None]:
        yield from self._attempts.of_all("queues", self._learn_queues(), None)
        yield from self._attempts.of_all("clock", self._watch_clock(), None)
        clients = yield from self._attempts.of_all("connections", self._clients(), None)
        self._liveness.connections(clients, self._connection.connected_at, self._connection.reconnected)
        yield from self._note_start()
        self._looked, gone, looked = Scan(), {}, []
        kinds = (lambda keys: keys.consumers, lambda keys: keys.ticks)
        watched, scheduled = yield from self._survey.having_each("scan", kinds, self._survey.queues)
        self._schedules.found_in(scheduled)
        for page in pages(watched):
            for keys, (now, leases) in (yield from self._attempts.together("scan", page, read_leases)):
                self._looked.consumers += len(leases)
                looked.append((keys, leases))
                for vanished in self._liveness.look(keys.queue, leases, now):
                    gone[keys.queue, vanished.consumer] = _Gone(keys, vanished, now, time.monotonic())
        self._looked.vanished = len(gone)
        # Consumers already in line stay in front.
        self._gone = {one: gone[one] for one in (*(old for old in self._gone if old in gone), *gone)}
        self._holders = holders_by_process(looked, gone)
        self._attempts.nothing_to_do("reclaim", self._survey.queues, but={consumer for _, consumer in gone})
        inhabited = {keys.queue for keys in watched}
        for keys in self._instance_queues:
            look = self._instances.look(keys, alone=keys.queue not in inhabited)
            yield from self._attempts.of_queue("broadcast", keys, look, None)

    def _reclaim(self, seconds: float) -> Scan:
        """Take back the messages of vanished consumers in turns, for about `seconds`; the rest waits."""
        report, until = self._looked, time.monotonic() + seconds
        self._looked = Scan()
        while self._gone and time.monotonic() < until:
            one = next(iter(self._gone))
            gone = self._gone.pop(one)
            self._run(self._note_company(gone.vanished.consumer))
            slice_until = min(until, time.monotonic() + (_RECLAIM_A_CONSUMER if seconds < math.inf else math.inf))
            result = self._run(self._take_back(gone, slice_until))
            report.add(result)
            if result.unfinished:
                self._gone[one] = gone
        if report.reclaimed or report.died:
            log.info(
                "reclaimed=%d died=%d conflicts=%d vanished=%d",
                report.reclaimed, report.died, report.conflicts, report.vanished,
            )  # fmt: skip
        return report

    def _note_company(self, consumer: str) -> Steps[None]:
        """Note the other messages of a process, once, before any of them is taken back."""
        holders = self._holders.pop(process_of(consumer), ())
        if len(holders) > 1:
            steps = note_company(holders)
            yield from self._attempts.of_queue("reclaim", holders[0][0], steps, None, consumer)

    def _take_back(self, gone: _Gone, until: float) -> Steps[Reclaimed]:
        keys, vanished = gone.keys, gone.vanished
        steps = take_back(keys, vanished.consumer, vanished.known_dead, until)
        result = yield from self._attempts.of_queue("reclaim", keys, steps, Reclaimed(), vanished.consumer)
        if self._measurements is not None:
            gone_for = (gone.seen_at - vanished.since) / 1000 + time.monotonic() - gone.looked_at
            self._measurements.recovered(keys.queue, gone_for, result.returned + result.died)
        return result

    def _clients(self) -> Steps[bytes | None]:
        if self._client_list_refused:
            return None
        try:
            answer: bytes = yield ops.client_list()
            return answer
        except RedisUnsuitable:  # some managed services: only the lease decides
            self._client_list_refused = True
            return None

    def _note_start(self) -> Steps[None]:
        """Notice a server that has just loaded its data: consumers with leases must come back first."""
        if self._started_at is not None or self._store.sharded:
            return
        self._started_at = time.monotonic()
        try:
            answers = yield ops.server_info("server", "persistence")
        except RedisUnsuitable:  # the user in the URL may not run it
            return
        info = {name: value for answer in answers for name, value in answer.items()}
        uptime = float(info.get("uptime_in_seconds") or OUTAGE_GRACE)
        loaded = info.get("rdb_last_load_keys_loaded", "0") != "0" or info.get("aof_enabled") == "1"
        if loaded and uptime < OUTAGE_GRACE:
            self._liveness.disturbed(self._started_at - uptime)

    def _watch_clock(self) -> Steps[None]:
        """Notice a jump of the server's clock, record it for `reliq doctor`, and judge no lease by it."""
        if self._store.sharded:
            return
        jump = yield from self._clock.ask()
        if jump:
            self.clock_jumps += 1
            self._liveness.jumped(jump)
            log.error(
                "the clock of the Redis server jumped by %+.1f s: delayed messages come so much too early or too late; "
                "run NTP on the server, and let it slew the clock", jump / 1000,
            )  # fmt: skip
            now = yield ops.server_time()
            yield ops.note_clock_jump(now, jump)

    # --- queues and leadership ---

    def _know_queues(self) -> None:
        if not self._survey.queues:
            self._run(self._attempts.of_all("queues", self._learn_queues(), None))

    def _learn_queues(self) -> Steps[None]:
        names = yield ops.queue_names()
        if names != self._names:
            every = [QueueKeys(name) for name in names]
            self._survey = Survey(self._attempts, every, self._survey.at_once)
            self._names = names
            self._instance_queues = [keys for keys in every if instance_of(keys.queue)]

    def _node_of(self, home: JobKeys) -> str:
        slots = self._slots = self._store.slots or self._slots
        if slots is None:
            return ""
        node = slots.node_of(home.jobs)
        return "" if node is None else f"{node[0]}:{node[1]}"

    def _lead(self) -> Steps[bool]:
        lasts = max(_LEADER_FOR, 1.6 * self._interval)
        try:
            if (yield ops.become_leader(self._id, lasts)):
                return True
            holder = yield ops.leader()
        except (QueueFull, RedisUnsuitable):  # a full Redis needs its monitors; with a foreign key all of them lead
            return True
        if holder != self._id:
            return False
        yield ops.stay_leader(lasts)
        return True

    def _follow_leader(self) -> None:
        lead = self._lead()
        if self._store.sharded:  # if the key is unreachable, all lead: any number of leaders is correct
            lead = self._attempts.of_all("leader", lead, otherwise=True)
        leading = self._run(lead)
        if not leading:
            self._liveness.forget()
            self._schedules.forget()
            self._gone = {}
        new, self.leading = leading and not self.leading, leading
        # A new leader has no earlier observations: the second look, which decides, comes soon.
        self._next_scan = time.monotonic() + (self._interval / 2 if new else self._interval)

    # --- the loop ---

    def run(self, stopping: threading.Event) -> None:
        """Perform each duty when it is due, until `stopping` is set; wait while Redis is away."""
        outage, self._patience = OutageLog(log, "monitor"), 0.0
        expected = Moment.now()
        while not stopping.is_set():
            if expected.after(_PAUSE).passed():
                self._liveness.disturbed()  # this process or its machine was suspended: leases were not renewed
            try:
                pause = min(self._turn(), self._next_scan - time.monotonic())
            except ReliqError as error:
                outage.failed(error)
                self._liveness.disturbed()
                pause = self._interval  # the next scan is due already: without a pause this would keep a core busy
            except Exception:
                log.exception("a turn of the monitor failed")
                pause = self._interval
            else:
                outage.over()
            deaths.flush()
            pause = max(0.0, pause)
            expected = Moment.now().after(pause)
            stopping.wait(pause)
        self._connection.close()

    def _turn(self) -> float:
        """Perform the due duties; return the seconds until the next turn."""
        if time.monotonic() >= self._next_scan:
            self._follow_leader()
            if self.leading:
                self._look()
                self.finish_staged()
                self.ask_undecided()
                self.end_batches()
        if not self.leading:
            return self._interval
        self._run(self._schedules.turn(self._survey))
        if self._gone:
            self._reclaim(_RECLAIM_A_TURN)
        if time.monotonic() >= self._next_tidy:
            more = self.tidy()
            self._next_tidy = time.monotonic() + (0.0 if more else _RETENTION_EVERY)
        pause = min(self._promote_pause(), self._schedules.pause)
        return 0.0 if self._gone or self._next_tidy <= time.monotonic() else pause

    def _promote_pause(self) -> float:
        """Promote, and return the seconds until the next promotion."""
        promoted, next_due = self.promote()
        if promoted and next_due == 0.0:
            return 0.0
        return self._tick if next_due is None else min(self._tick, max(next_due, self._tick / _LOOKS_A_TICK))

    def _run(self, steps: Steps[T]) -> T:
        return self._store.run(steps, self._connection, timeout=self._patience)

    @property
    def _tick(self) -> float:
        """Return the seconds between two looks at delayed messages."""
        return _PROMOTE_EVERY + _PROMOTE_PER_QUEUE * len(self._names)
