"""The loop of one monitor for the queues of one Redis server: every duty in turn, for the queues that it leads.

Any number of monitors is correct; sharing the queues saves work. Each duty of each queue fails alone (`attempts`), and
does a bounded amount of work in a turn.
"""

import contextlib
import logging
import threading
import time
from typing import TypeVar

from reliq.contract import values
from reliq.errors import ReliqError
from reliq.observability.histograms import Measurements
from reliq.observability.monitor_state import MonitorState
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq_monitor.attempts import Attempts
from reliq_monitor.calls import Calls
from reliq_monitor.duties import DUTIES
from reliq_monitor.duty import Duty
from reliq_monitor.liveness import Liveness
from reliq_monitor.lookout import Lookout
from reliq_monitor.membership import BEAT_EVERY, BEAT_OF_COMMON_EVERY, DUTY, Membership
from reliq_monitor.place import WHOLE, Place
from reliq_monitor.queue_scan import TOGETHER, Survey
from reliq_monitor.reclaim import deaths
from reliq_monitor.rota import Rota
from reliq_monitor.server_watch import ServerWatch

log = logging.getLogger("reliq.monitor")

T = TypeVar("T")

_PAUSE = 3.0  #: seconds by which a turn may come late before this process counts as paused
_KNOWS_NONE = 0.04  #: seconds until the names of the queues are read again while there are none


class NodeMonitor:
    """Performs the duties of one place: all of them in `run`, or single ones by `perform`."""

    def __init__(
        self,
        store: Store,
        scan_interval: float,
        measurements: Measurements | None,
        reconnect_grace: values.Duration,
        place: Place = WHOLE,
    ) -> None:
        self.place = place
        self._interval = scan_interval
        self._calls = Calls(store, place.node)
        in_part = place is not WHOLE
        sharded = store.sharded and not in_part
        self._attempts = Attempts(
            (lambda _: "") if in_part else self._calls.node_of, sharded, in_part, [duty.name for duty in DUTIES]
        )
        self._rota = Rota(DUTIES, self._calls, self._attempts, scan_interval)
        self._liveness = Liveness(values.seconds(reconnect_grace, "reconnect_grace"))
        self._membership = Membership(place.tag, BEAT_EVERY if place.has_queues else BEAT_OF_COMMON_EVERY)
        self._lookout = Lookout(
            place,
            self._calls,
            Survey(
                self._attempts,
                common=place.common,
                at_once=1 if store.sharded else TOGETHER,
                away=place.away,
                known=self._calls.known,
                measurements=measurements,
            ),
            self._membership,
            self._liveness,
            ServerWatch(self._liveness, self._calls.at_node, sharded, place.sightings),
            self._rota.seeks,
            (self._liveness, self._attempts, self._rota),
        )
        self._next_look = self._next_beat = 0.0
        self._hurries = False  #: whether the look after the next one comes soon
        self._last_scan_at = 0.0  #: seconds since the epoch: the end of the latest look with which every duty runs
        self._last_scan_took = 0.0  #: seconds
        self._leading = False
        self.away = False  #: whether the server cannot be reached
        self._taken_over = 0  #: queues that came from another monitor

    @property
    def unresponsive(self) -> bool:
        """Whether the server cannot be reached, or does not answer now."""
        return self.away or self._calls.unanswered

    def state(self) -> MonitorState:
        """Return what it has done and sees now. A spare, and one whose server is away, tell of no scan."""
        return MonitorState(
            failures=dict(self._attempts.failures),
            failing=self._attempts.failing,
            leading=self._leading,
            led_queues=len(self._lookout.survey.queues) if self._leading else 0,
            members=self._membership.alive,
            taken_over=self._taken_over,
            last_scan_at=self._last_scan_at if self._leading and not self.away else 0.0,
            last_scan_took=self._last_scan_took,
            clock_jumps=self._lookout.clock_jumps,
        )

    def look(self) -> None:
        """Look at the queues, the server and the consumers; the duties work on what is found."""
        started = time.monotonic()
        self._attempts.prune()
        self._lookout.look()
        self._last_scan_took = time.monotonic() - started
        optional_parts = {DUTY, *self._rota.optional_parts}  # all duties are done nevertheless
        if not any(queue == "" and duty not in optional_parts for duty, queue in self._attempts.failing):
            self._last_scan_at = time.time()

    def perform(self, duty: type[Duty[T]]) -> T:
        """Perform one duty once, on what the latest look found; return what its turn returns."""
        if self._lookout.knows_none:
            self._lookout.learn_queues()
        return self._calls.run(self._rota.duty_of(duty).turn(self._lookout.survey))

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    # --- the loop ---

    def run(self, stopping: threading.Event) -> None:
        """Perform each duty when it is due, until `stopping` is set; wait while Redis is away."""
        outage = OutageLog(log, self.place.title)
        self._calls.patience = 0.0
        if self.place.has_queues:
            self._calls.begin_notices()
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
                pause = self._interval  # the next look is due already: without a pause this would keep a core busy
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
        self._calls.interrupt()

    def _leave(self) -> None:
        """Leave the queues to the other monitors, and close the connections."""
        if not self.away:
            with contextlib.suppress(ReliqError):
                self._calls.run(self._membership.resign())
        self.close()

    def _turn(self) -> float:
        """Perform the due duties; return the seconds until the next turn."""
        self._calls.take_notices()
        if time.monotonic() >= self._next_beat:
            self._beat()
        pause = self._next_beat - time.monotonic()
        if self._leading:
            pause = min(pause, self._perform_due())
        else:
            self._attempts.prune()  # who leads now tries again
        return max(0.0, pause)

    def _beat(self) -> None:
        """Note that this monitor is alive, and take over or leave queues as other monitors go or come."""
        self._next_beat = time.monotonic() + self._membership.beat_every
        was_known, was_leading = self._membership.known, self._leading
        beat = self._membership.beat()
        if not self._calls.run(self._attempts.of_all(DUTY, beat, otherwise=False)):
            self._membership.unknown()
        self._leading = self._membership.leading
        if self._membership.was_missed:
            self._liveness.forget()  # others led the queues meanwhile
        if self._membership.changed():
            new = self._lookout.share_out()
            self._taken_over += len(new) if was_known else 0
            if new or (self._leading and not was_leading):
                # There are no earlier observations of these queues: the second look, which decides, comes soon.
                self._next_look = 0.0
                self._hurries = True

    def _perform_due(self) -> float:
        """Scan if a scan is due, perform the duties that are due, and return the seconds until the next turn."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + (self._interval / 2 if self._hurries else self._interval)
            self._hurries = False
            self.look()
        elif self._lookout.knows_none:
            self._lookout.learn_queues()
        pause = min(self._rota.turn(self._lookout.survey), self._next_look - time.monotonic())
        return min(pause, _KNOWS_NONE) if self._lookout.knows_none else pause
