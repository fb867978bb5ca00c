"""The loop of one monitor for the queues of one Redis server: every duty in turn, for the queues that it leads.

Any number of monitors is correct; sharing the queues saves work. Each duty of each queue fails alone (`attempts`), and
does a bounded amount of work in a turn.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeVar

from reliq import ops
from reliq.contract import values
from reliq.errors import ReliqError
from reliq.model.keys import SEVERAL, JobKeys, QueueKeys, instance_of
from reliq.observability.histograms import Measurements
from reliq.ops import Steps
from reliq.ops.topology import Slots
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.connection import Connection
from reliq.transport.store import Store
from reliq_monitor.attempts import Attempts
from reliq_monitor.batches import Batches
from reliq_monitor.broadcast_cleanup import BroadcastCleanup
from reliq_monitor.liveness import Leases, Liveness, read_leases
from reliq_monitor.membership import BEAT_EVERY, Membership
from reliq_monitor.partitions import Partitions
from reliq_monitor.place import BATCHES, WHOLE, Place
from reliq_monitor.prepared_timeouts import ask_undecided
from reliq_monitor.promote import promote_due
from reliq_monitor.queue_scan import TOGETHER, Survey, pages
from reliq_monitor.reclaim import deaths
from reliq_monitor.retention import forget_producers, forget_streams, trim_dead_letters
from reliq_monitor.returns import Returns, Scan
from reliq_monitor.schedules import Schedules
from reliq_monitor.server_watch import ServerWatch
from reliq_monitor.staged import finish_staged

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")

_PROMOTE_EVERY = 0.04  #: seconds; a message known to be due before the next look is promoted when it is due
_PROMOTE_PER_QUEUE = 0.0002  #: seconds added for each queue, so that a thousand of them do not keep a core busy
_LOOKS_A_TICK = 8  #: the most looks in that time, however many messages are about to be due
_RETENTION_EVERY = 10.0
_RECLAIM_A_TURN = 0.05  #: seconds for taking messages back before the other duties have their turn
_PAUSE = 3.0  #: seconds by which a turn may come late before this process counts as paused

_UNRESPONSIVE = 1.0  #: seconds after which a call counts as one that gets no answer
_DISPENSABLE = ("members", "company")  #: duties without which all others are done


class NodeMonitor:
    """Performs the duties of one place: all of them in `run`, or single ones by their methods."""

    def __init__(
        self,
        store: Store,
        scan_interval: float,
        measurements: Measurements | None,
        reconnect_grace: values.Duration,
        place: Place = WHOLE,
    ) -> None:
        self._store = store
        self.place = place
        self._interval = scan_interval
        self._patience: float | None = None  #: seconds a call is repeated; in the loop the next turn repeats it
        self._connection = store.connection("reliq-monitor")
        at_node = self._connection if place.node is None else store.connection_to(place.node, "reliq-monitor")
        self._at_node = at_node  #: for what belongs to the node and to no queue
        in_part = place is not WHOLE
        self._attempts = Attempts(self._node_of, store.sharded and not in_part, in_part)
        self._liveness = Liveness(values.seconds(reconnect_grace, "reconnect_grace"))
        self._watch = ServerWatch(self._liveness, at_node, store.sharded and not in_part, place.sightings)
        self._membership = Membership(place.tag)
        self._instances = BroadcastCleanup()
        self._schedules = Schedules(self._attempts, measurements)
        self._batches = Batches(self._attempts, place.away)
        self._partitions = Partitions()
        self._returns = Returns(self._attempts, measurements, self._liveness)
        self._names: list[str] = []  #: of all queues here
        at_once = 1 if store.sharded else TOGETHER
        self._survey = Survey(self._attempts, at_once=at_once, several=SEVERAL.place in place.common)
        self._instance_queues: list[QueueKeys] = []
        self._leads_batches = BATCHES in place.common
        self._slots: Slots | None = None
        self._next_scan = self._next_tidy = self._next_beat = 0.0
        self._hurries = False  #: whether the scan after the next one comes soon
        self.last_scan_at = 0.0  #: seconds since the epoch: the end of the latest turn in which every duty ran
        self.last_scan_took = 0.0  #: seconds
        self.leading = False
        self._called_at = math.inf  #: by time.monotonic(): when the call under way began
        self.away = False  #: whether the server cannot be reached
        self.taken_over = 0  #: queues that came from another monitor
        self.clock_jumps = 0  #: of the Redis server

    @property
    def failures(self) -> dict[str, int]:
        """Failed attempts by duty since the start."""
        return dict(self._attempts.failures)

    @property
    def failing(self) -> AbstractSet[tuple[str, str]]:
        """The duties that fail now, each with its queue; an empty text means all queues."""
        return self._attempts.failing

    @property
    def unresponsive(self) -> bool:
        """Whether the server cannot be reached, or does not answer now."""
        return self.away or time.monotonic() - self._called_at > _UNRESPONSIVE

    @property
    def led_queues(self) -> int:
        """The queues that this monitor leads."""
        return len(self._survey.queues) if self.leading else 0

    @property
    def members(self) -> int:
        """The monitors that share the queues; 0 while they are not known."""
        return self._membership.alive

    # --- one duty at a time ---

    def scan(self) -> Scan:
        """Check every consumer of every queue once, and take back the messages of vanished ones."""
        self._look()
        return self._returns.take_back(self._run, math.inf)

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
        return self._run(self._batches.turn()) if self._leads_batches else 0

    def tend_partitions(self) -> int:
        """Bring changes of numbers of partitions on; return how many messages went on by that."""
        self._know_queues()
        self._partitions.found_in(self._every_name)
        return self._run(self._partitions.turn(self._survey))

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
        """Find vanished consumers; `Returns` takes back their messages."""
        started = time.monotonic()
        self._attempts.prune()
        self._run(self._attempts.of_all("queues", self._learn_queues(), None))
        if self.place.has_queues:
            self._watch_server()
            self._run(self._scan())
        self.last_scan_took = time.monotonic() - started
        if not any(queue == "" and duty not in _DISPENSABLE for duty, queue in self.failing):
            self.last_scan_at = time.time()

    def _watch_server(self) -> None:
        attempts, watch = self._attempts, self._watch
        jump = self._run(attempts.of_all("clock", watch.clock_jump(), 0), self._at_node)
        if jump:
            self.clock_jumps += 1
            self._run(attempts.of_all("clock", self._note_jump(jump), None, "note", elsewhere=True))
        watch.begin(self._run(attempts.of_all("connections", watch.clients(), None), self._at_node))
        self._run(attempts.of_all("connections", watch.note_start(), None, "start"), self._at_node)

    def _note_jump(self, jump: int) -> Steps[None]:
        now = yield ops.server_time()
        yield ops.note_clock_jump(now, jump)
        yield from self._membership.resign()  # and come back: the others' presence was noted by the earlier clock

    def _scan(self) -> Steps[None]:
        kinds = (lambda keys: keys.consumers, lambda keys: keys.ticks)
        watched, scheduled = yield from self._survey.having_each("scan", kinds, self._survey.queues)
        self._schedules.found_in(scheduled)
        looked: list[tuple[QueueKeys, int, Leases]] = []
        for page in pages(watched):
            found = yield from self._attempts.together("scan", page, read_leases)
            looked += [(keys, now, leases) for keys, (now, leases) in found]
        self._returns.note(looked, self._survey.queues)
        yield from self._returns.find_company(self._others)
        inhabited = {keys.queue for keys in watched}
        for keys in self._instance_queues:
            look = self._instances.look(keys, alone=keys.queue not in inhabited)
            yield from self._attempts.of_queue("broadcast", keys, look, None, elsewhere=True)

    def _others(self) -> Survey | None:
        """Return the queues that other monitors lead; None if a node with some of them is away."""
        led = {keys.queue for keys in self._survey.queues}
        others = [QueueKeys(name) for name in self._every_name if name not in led]
        return None if any(map(self.place.away, others)) else replace(self._survey, queues=others)

    # --- queues and their monitors ---

    @property
    def _every_name(self) -> Sequence[str]:
        """All queues, also those of other nodes."""
        return self._names if self.place.every_name is None else self.place.every_name()

    def _know_queues(self) -> None:
        if not self._names:
            self._run(self._attempts.of_all("queues", self._learn_queues(), None))

    def _learn_queues(self) -> Steps[None]:
        names = (yield ops.queue_names()) if self.place.names is None else list(self.place.names())
        if names != self._names:
            self._names = names
            self._share_out()

    def _share_out(self) -> list[str]:
        """Find this monitor's share of the queues, and forget the others; return the queues that are new in it."""
        share = self._membership.share(self._names)
        several = SEVERAL.place in self.place.common and self._membership.leads(SEVERAL.place)
        self._leads_batches = BATCHES in self.place.common and self._membership.leads(BATCHES)
        before = {keys.queue for keys in self._survey.queues}
        if before != set(share) or several != self._survey.several:
            every = [QueueKeys(name) for name in share]
            self._survey = replace(self._survey, queues=every, several=several)
            self._instance_queues = [keys for keys in every if instance_of(keys.queue)]
            for memory in (self._liveness, self._returns, self._instances, self._attempts):
                memory.keep({*share, *self.place.common})
        return [name for name in share if name not in before]

    def _node_of(self, home: JobKeys) -> str:
        slots = self._slots = self._store.slots or self._slots
        node = slots.node_of(home.jobs) if slots is not None and self.place is WHOLE else None
        return "" if node is None else f"{node[0]}:{node[1]}"

    def _beat(self) -> None:
        """Note that this monitor is alive, and take over or leave queues as other monitors go or come."""
        self._next_beat = time.monotonic() + BEAT_EVERY
        was_known, was_leading = self._membership.known, self.leading
        beat = self._membership.beat()
        if not self._run(self._attempts.of_all("members", beat, otherwise=False)):
            self._membership.unknown()
        self.leading = self._membership.leading
        if self._membership.was_missed:
            self._liveness.forget()  # others led the queues meanwhile
        if self._membership.changed():
            new = self._share_out()
            self.taken_over += len(new) if was_known else 0
            if new or (self.leading and not was_leading):
                # There are no earlier observations of these queues: the second look, which decides, comes soon.
                self._next_scan = 0.0
                self._hurries = True

    # --- the loop ---

    def run(self, stopping: threading.Event) -> None:
        """Perform each duty when it is due, until `stopping` is set; wait while Redis is away."""
        outage = OutageLog(log, "monitor") if self.place is WHOLE else OutageLog(log, self.place.title)
        self._patience = 0.0
        expected = Moment.now()
        while not stopping.is_set():
            if expected.after(_PAUSE).passed():
                self._liveness.disturbed()  # this process or its machine was suspended: leases were not renewed
            try:
                pause = self._turn()
            except ReliqError as error:
                self.away = True
                if self.place.node is not None:
                    self._attempts.failures["node"] += 1
                outage.failed(error)
                self._liveness.disturbed()
                pause = self._interval  # the next scan is due already: without a pause this would keep a core busy
            except Exception:
                log.exception("a turn of the monitor failed")
                pause = self._interval
            else:
                self.away = False
                outage.over()
            deaths.flush()
            expected = Moment.now().after(pause)
            stopping.wait(pause)
        self._leave()

    def interrupt(self) -> None:
        """Make a call that waits for a node fail, for a loop that is to end. Thread-safe."""
        self._connection.interrupt()
        self._at_node.interrupt()

    def _leave(self) -> None:
        """Leave the queues to the other monitors, and close the connections."""
        if not self.away:
            with contextlib.suppress(ReliqError):
                self._run(self._membership.resign())
        self._connection.close()
        self._at_node.close()

    def _turn(self) -> float:
        """Perform the due duties; return the seconds until the next turn."""
        if time.monotonic() >= self._next_beat:
            self._beat()
        pause = math.inf
        if self.leading:
            if time.monotonic() >= self._next_scan:
                self._scan_everything()
            pause = self._move_messages()
            pause = min(pause, self._next_scan - time.monotonic())
        return max(0.0, min(pause, self._next_beat - time.monotonic()))

    def _scan_everything(self) -> None:
        self._next_scan = time.monotonic() + (self._interval / 2 if self._hurries else self._interval)
        self._hurries = False
        self._look()
        self.finish_staged()
        self.ask_undecided()
        self.end_batches()
        self.tend_partitions()

    def _move_messages(self) -> float:
        """Perform the duties between two scans; return the seconds until they are due again."""
        self._run(self._schedules.turn(self._survey))
        if self._returns.waiting:
            self._returns.take_back(self._run, _RECLAIM_A_TURN)
        if time.monotonic() >= self._next_tidy:
            more = self.tidy()
            self._next_tidy = time.monotonic() + (0.0 if more else _RETENTION_EVERY)
        if not self._survey.queues and (self._names or self.place.names is not None):
            return self._interval
        pause = min(self._promote_pause(), self._schedules.pause)
        return 0.0 if self._returns.waiting or self._next_tidy <= time.monotonic() else pause

    def _promote_pause(self) -> float:
        """Promote, and return the seconds until the next promotion."""
        promoted, next_due = self.promote()
        if promoted and next_due == 0.0:
            return 0.0
        return self._tick if next_due is None else min(self._tick, max(next_due, self._tick / _LOOKS_A_TICK))

    def _run(self, steps: Steps[T], connection: Connection | None = None) -> T:
        self._called_at = time.monotonic()
        try:
            return self._store.run(steps, connection or self._connection, timeout=self._patience)
        finally:
            self._called_at = math.inf

    @property
    def _tick(self) -> float:
        """Return the seconds between two looks at delayed messages."""
        return _PROMOTE_EVERY + _PROMOTE_PER_QUEUE * len(self._every_name)
