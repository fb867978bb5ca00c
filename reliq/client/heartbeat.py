"""Renewing leases from a thread of their own: a busy handler must not cost its worker the lease. Written by hand:
`reliq.aio.heartbeat` does it in a task.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reliq import ops
from reliq.contract import values
from reliq.errors import QueueFull, ReliqError
from reliq.model.keys import QueueKeys, connection_name
from reliq.ops.topology import Node
from reliq.protocol.lease import Lease
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.heartbeat")

_LOOK_EVERY = 0.5  #: seconds between two looks whether it is to stop


class Heartbeat(threading.Thread):
    """Renews `leases()` three times in their `length`, and tells `lost(lease)` of each that is gone.

    Its connection is named after the owner and stands while the owner lives: a monitor that no longer sees it takes
    the owner for dead, sooner than its lease. So between two beats it waits on the socket, to be back at once.

    On a Redis Cluster each node has a thread of its own: one that is unreachable delays the beats of no other.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        length: float,
        leases: Callable[[], Sequence[Lease]],
        lost: Callable[[Lease], None],
        part_of: threading.Event | None = None,
    ) -> None:
        """`part_of`: this is the part for one node of a cluster, and ends when the whole sets this."""
        super().__init__(name=f"reliq-heartbeat-{owner[:6]}", daemon=True)
        self._connection = store.connection(connection_name(owner))
        self._store = store
        self._owner = owner
        self._length = length
        self._interval = length / values.HEARTBEATS_PER_LEASE
        self._leases = leases
        self._lost = lost
        self._stopping = part_of or threading.Event()
        self._outage = OutageLog(log, "heartbeat")
        self._is_part = part_of is not None
        self.over = False  #: its node has gone
        self._parts: dict[Node, Heartbeat] = {}
        self._unsent: dict[tuple[QueueKeys, str], bytes] = {}  # descriptions that Redis does not have yet

    def beat(self) -> None:
        """Renew every lease now, but for those that a part of this heartbeat sees to."""
        leases = [lease for lease in self._leases() if self._node_of(lease) not in self._parts]
        if not leases:
            self._store.call(ops.ping(), self._connection, timeout=0)
            return
        beats = [ops.heartbeat(lease.keys, lease.consumer, lease.length) for lease in leases]
        sent_at, alive_ones = Moment.now(), list[Lease]()
        for lease, alive in zip(leases, self._store.call(beats, self._connection, timeout=0), strict=True):
            if alive:
                lease.renewed(sent_at)
                alive_ones.append(lease)
            else:
                self._lost(lease)
        looks: list[ops.Op[Any]] = [ops.told(lease.keys) for lease in leases]
        changed = {(one.keys, one.consumer): one.description() for one in alive_ones if one.description is not None}
        self._unsent = {one: text for one in changed if (text := changed[one] or self._unsent.get(one))}
        describes = [ops.describe(*one, text) for one, text in self._unsent.items()]
        try:
            answers = self._store.call([*looks, *describes], self._connection, timeout=0)
            self._unsent = {}
        except QueueFull:  # descriptions are for people only: they wait for room
            answers = self._store.call(looks, self._connection, timeout=0)
        for lease, cancelled in zip(leases, answers, strict=False):
            if cancelled:
                lease.told(cancelled)

    def _node_of(self, lease: Lease) -> Node | None:
        return self._store.node_of(lease.keys.messages)

    def _divide(self) -> None:
        """Have each node's leases renewed by a thread of their own."""
        for former in self._store.former(self._parts):
            self._parts.pop(former).over = True
        for node in {self._node_of(lease) for lease in self._leases()}:
            if node is None or node in self._parts:
                continue
            leases = partial(self._at, node)
            part = Heartbeat(self._store, self._owner, self._length, leases, self._lost, self._stopping)
            part.start()
            self._parts[node] = part

    def _at(self, node: Node) -> list[Lease]:
        return [lease for lease in self._leases() if self._node_of(lease) == node]

    def run(self) -> None:
        while not (self._stopping.is_set() or self.over):
            if self._store.sharded and not self._is_part:
                self._divide()
            try:
                self.beat()
            except ReliqError as error:
                self._outage.failed(error)
                self._stopping.wait(values.RECONNECT_PAUSE)
            except Exception:
                log.exception("a heartbeat failed; retrying with the next one")  # its thread must outlive everything
                self._connection.close()
                self._stopping.wait(values.RECONNECT_PAUSE)
            else:
                self._outage.over()
                self._rest()
        self._connection.close()

    def _rest(self) -> None:
        """Wait until the next beat, the end of the connection, or `stop`."""
        until = time.monotonic() + self._interval
        while not (self._stopping.is_set() or self.over) and (left := until - time.monotonic()) > 0:
            if self._connection.wait_closed(min(left, _LOOK_EVERY)):
                return

    def stop(self) -> None:
        """Stop renewing. Returns at once; the thread and its connection end soon."""
        self._stopping.set()
