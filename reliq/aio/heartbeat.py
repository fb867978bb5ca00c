"""Renewing a lease from a task of its own. Written by hand: `reliq.client.heartbeat` does it in a thread."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from reliq import ops
from reliq.contract import values
from reliq.errors import ReliqError
from reliq.model.keys import connection_name
from reliq.protocol.lease import Lease
from reliq.runtime.moment import Moment
from reliq.transport.aiostore import AioStore


class Heartbeat:
    """Renews `leases()` three times in their `length`, and tells `lost(lease)` of each that is gone.

    Its connection is named after the owner: a monitor must see that it lives.
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
        self._connection = store.connection(connection_name(owner))
        self._interval = length / values.HEARTBEATS_PER_LEASE
        self._leases = leases
        self._lost = lost
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to renew."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop renewing."""
        if self._task is not None:
            self._task.cancel()
        await self._connection.close()

    async def _beat(self) -> None:
        for lease in self._leases():
            sent_at = Moment.now()
            request: list[ops.Op[Any]] = [ops.heartbeat(lease.keys, lease.consumer, lease.length), ops.told(lease.keys)]
            alive, told = await self._store.call(request, self._connection)
            if alive:
                lease.renewed(sent_at)
                lease.told(told)
            else:
                self._lost(lease)

    async def _run(self) -> None:
        while True:
            try:
                await self._beat()
            except ReliqError:
                await asyncio.sleep(values.RECONNECT_PAUSE)
            else:
                await self._connection.wait_closed(self._interval)
