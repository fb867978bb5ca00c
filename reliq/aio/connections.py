"""The connections of a consumer by hand: its homes on one node share two."""

from reliq.aio.unbroken import Lock
from reliq.model.keys import connection_name
from reliq.protocol.consumer import ConsumerSteps
from reliq.transport.aiostore import AioStore


class Connections:
    """One connection that claims, and one `beside` it that settles while a claim waits. Each has a lock.

    One caller claims at a time.
    """

    def __init__(self, store: AioStore, owner: str) -> None:
        self.main = store.connection(connection_name(owner))
        self.main.on_connect = self._connected
        self.beside = store.connection(connection_name(owner))
        self.lock = Lock()
        self.beside_lock = Lock()
        self.claiming = False  #: a claim has the main connection, for up to a second
        self._named = True
        self._users: list[ConsumerSteps] = []

    def use(self, steps: ConsumerSteps) -> None:
        """Tell a consumer in Redis of each new main connection."""
        steps.connected(self._named)
        self._users.append(steps)

    async def leave(self, steps: ConsumerSteps) -> None:
        """End the use by a consumer; the last one closes the connections."""
        self._users.remove(steps)
        if not self._users:
            await self.main.close()
            await self.beside.close()

    def _connected(self, named: bool) -> None:
        self._named = named
        for steps in self._users:
            steps.connected(named)
