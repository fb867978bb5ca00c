"""Renewing a lease from a task of its own. Written by hand: `reliq.client.heartbeat` does it in a thread."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reliq import ops
from reliq.contract import values
from reliq.errors import ReliqError
from reliq.model.keys import connection_name
from reliq.ops.topology import Node
from reliq.protocol.lease import Lease
from reliq.runtime.moment import Moment
from reliq.transport.aiostore import AioStore


class Heartbeat:
    """Renews `leases()` three times in their `length`, and tells `lost(lease)` of each that is gone.

    Its connection is named after the owner: a monitor must see that it lives. On a Redis Cluster each node has a task
    of its own: one that is unreachable delays the beats of no other.
    """

    def __init__(
        self,
        store: AioStore,
        owner: str,
        length: float,
        leases: Callable[[], Sequence[Lease]],
        lost: Callable[[Lease], None],
    ) -> None:
        self._store = store
        self._owner = owner
        self._connection = store.connection(connection_name(owner))
        self._length = length
        self._leases = leases
        self._lost = lost
        self._task: asyncio.Task[None] | None = None
        self._parts: dict[Node, Heartbeat] = {}

    def start(self) -> None:
        """Begin to renew."""
        self._task = asyncio.create_task(self._run(self._store.sharded))

    async def stop(self) -> None:
        """Stop renewing."""
        if self._task is not None:
            self._task.cancel()
        await self._connection.close()
        for part in self._parts.values():
            await part.stop()

    async def _beat(self) -> None:
        """Renew every lease now, but for those that a part of this heartbeat sees to."""
        leases = [lease for lease in self._leases() if self._node_of(lease) not in self._parts]
        beats: list[ops.Op[Any]] = [ops.heartbeat(lease.keys, lease.consumer, lease.length) for lease in leases]
        looks: list[ops.Op[Any]] = [ops.told(lease.keys) for lease in leases]
        if not leases:
            return
        sent_at = Moment.now()
        answers = await self._store.call([*beats, *looks], self._connection)
        for lease, alive, told in zip(leases, answers, answers[len(leases) :], strict=False):
            if alive:
                lease.renewed(sent_at)
                lease.told(told)
            else:
                self._lost(lease)

    def _node_of(self, lease: Lease) -> Node | None:
        return self._store.node_of(lease.keys.messages)

    async def _divide(self) -> None:
        """Have each node's leases renewed by a task of their own."""
        for former in self._store.former(self._parts):
            await self._parts.pop(former).stop()
        for node in {self._node_of(lease) for lease in self._leases()}:
            if node is None or node in self._parts:
                continue
            leases = partial(self._at, node)
            part = self._parts[node] = Heartbeat(self._store, self._owner, self._length, leases, self._lost)
            part._task = asyncio.create_task(part._run(divided=False))

    def _at(self, node: Node) -> list[Lease]:
        return [lease for lease in self._leases() if self._node_of(lease) == node]

    async def _run(self, divided: bool) -> None:
        while True:
            if divided:
                await self._divide()
            try:
                await self._beat()
            except ReliqError:
                await asyncio.sleep(values.RECONNECT_PAUSE)
            else:
                await self._connection.wait_closed(self._length / values.HEARTBEATS_PER_LEASE)
