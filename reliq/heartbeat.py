"""Renewing leases from a thread of their own: a busy handler must not cost its worker the lease."""

import logging
import threading
from collections.abc import Callable, Sequence

from reliq import ops, settings
from reliq.errors import ReliqError
from reliq.keys import QueueKeys, connection_name
from reliq.moment import Moment
from reliq.outage import Outage
from reliq.store import Store

log = logging.getLogger("reliq.heartbeat")


class Lease:
    """One consumer's lease, as its heartbeat needs to know it."""

    __slots__ = ("consumer", "keys", "length", "renewed")

    def __init__(self, keys: QueueKeys, consumer: str, length: float, renewed: Callable[[Moment], object] = id) -> None:
        """`renewed` is told when each renewal that Redis confirmed was sent."""
        self.keys = keys
        self.consumer = consumer
        self.length = length
        self.renewed = renewed


class Heartbeat(threading.Thread):
    """Renews `leases()` three times in their `length`, and tells `lost(lease)` of each that is gone.

    Its connection is named after the owner and stands while the owner lives: a monitor that no longer sees it takes
    the owner for dead, sooner than its lease. So between two beats it waits on the socket, to be back at once.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        length: float,
        leases: Callable[[], Sequence[Lease]],
        lost: Callable[[Lease], None],
    ) -> None:
        super().__init__(name=f"reliq-heartbeat-{owner[:6]}", daemon=True)
        self._link = store.link(connection_name(owner))
        self._store = store
        self._interval = length / settings.HEARTBEATS_PER_LEASE
        self._leases = leases
        self._lost = lost
        self._stopping = threading.Event()
        self._outage = Outage(log, "heartbeat")

    def beat(self) -> None:
        """Renew every lease now."""
        leases = list(self._leases())
        if not leases:
            self._store.call(ops.command("PING"), self._link, timeout=0)
            return
        beats = [ops.heartbeat(lease.keys, lease.consumer, lease.length) for lease in leases]
        sent_at = Moment.now()
        for lease, alive in zip(leases, self._store.call(beats, self._link, timeout=0), strict=True):
            if alive:
                lease.renewed(sent_at)
            else:
                self._lost(lease)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.beat()
            except ReliqError as error:
                self._outage.failed(error)
                self._stopping.wait(settings.RECONNECT_PAUSE)
            else:
                self._outage.over()
                self._link.wait_closed(self._interval)
        self._link.close()

    def stop(self) -> None:
        """Stop renewing. Returns at once; the connection closes with the thread."""
        self._stopping.set()
