"""A monitor whose duties tests perform one at a time, by names of their own."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import reliq_monitor
from reliq.transport.store import Store
from reliq_monitor.duties import DUTIES
from reliq_monitor.duty import Duty
from reliq_monitor.forwarding import Forwarding
from reliq_monitor.partitions import Spreading
from reliq_monitor.promote import Promotion
from reliq_monitor.reappearance import Reappearance
from reliq_monitor.retention import DeadLetterTrimming, SilentProducers, SilentStreams
from reliq_monitor.returns import Returns, Scan


def _duty(name: str) -> type[Duty[Any]]:
    """Return the duty of a slice."""
    return next(duty for duty in DUTIES if duty.name == name)


class Monitor(reliq_monitor.Monitor):
    """Performs each duty to its end, for all queues."""

    def scan(self) -> Scan:
        """Look at every consumer once, and take back all messages of vanished ones."""
        self.look()
        report = self.perform(Returns)
        while self._whole._rota.duty_of(Returns).pause == 0.0:
            more = self.perform(Returns)
            report.reclaimed += more.reclaimed
            report.died += more.died
            report.conflicts += more.conflicts
        for duty in DUTIES:
            if duty.name == "broadcast":
                self.perform(duty)
        return report

    def promote(self) -> tuple[int, float | None]:
        """Promote due messages; return how many, and the seconds until the next is due."""
        return self.perform(Promotion)

    def return_due(self) -> int:
        """Make messages ready whose time in flight is over; return how many."""
        self.look()
        return self.perform(_duty("visibility"))

    def forward(self) -> int:
        """Send dead letters on to the queues of `dead_to`; return how many."""
        self.look()
        return self.perform(Forwarding)

    def finish_staged(self) -> int:
        """Finish staged jobs with a dead leader; return how many messages became visible."""
        return self.perform(_duty("staged"))

    def ask_undecided(self) -> tuple[int, int]:
        """Put questions about overdue prepared messages; return how many, and how many messages died undecided."""
        return self.perform(_duty("prepared"))

    def clean_outputs(self) -> int:
        """Delete the output of messages that left unhandled; return how many had one."""
        self.look()
        return self.perform(_duty("output"))

    def end_waits(self) -> int:
        """End waits for signals whose time is over, and forget records that no message has come for."""
        self.look()
        return self.perform(_duty("signals"))

    def tell_flows(self) -> int:
        """Tell messages of flows what has become of others, and tend open flows; return how much has happened."""
        told, more = 0, True
        while more:
            self.look()
            told += (more := self.perform(_duty("flows")))
        self.perform(_duty("open_flows"))
        return told

    def end_batches(self) -> int:
        """Send what follows the batches with messages that have all ended; return how many batches that were."""
        return self.perform(_duty("batches"))

    def tend_partitions(self) -> int:
        """Bring changes of numbers of partitions on; return how many messages went on by that."""
        return self.perform(Spreading)

    def send_ticks(self) -> int:
        """Send the due ticks of schedules, and prepare the next ones; return how many messages were sent."""
        self.look()
        return self.perform(_duty("schedules"))

    def tidy(self) -> bool:
        """Trim dead letters, forget silent producers and deleted queues; return whether more is left to trim."""
        self.perform(DeadLetterTrimming)
        self.perform(SilentProducers)
        self.perform(SilentStreams)
        self.perform(Reappearance)
        return self._whole._rota.duty_of(DeadLetterTrimming).pause == 0.0


@contextlib.contextmanager
def running(url: str) -> Iterator[Monitor]:
    """A monitor that looks often, in a thread."""
    monitor, stopping = Monitor(Store(url), 0.1, reconnect_grace=1), threading.Event()
    thread = threading.Thread(target=monitor.run, args=(stopping,))
    thread.start()
    try:
        yield monitor
    finally:
        stopping.set()
        thread.join()
