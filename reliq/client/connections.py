# Generated from reliq/aio/connections.py by tools/generate_sync.py: do not edit
"""The connections of a consumer by hand: its homes on one node share two."""

from collections.abc import Iterator
from contextlib import contextmanager

from reliq.client.unbroken import Lock, interrupts
from reliq.model.keys import connection_name
from reliq.protocol.consumer import ConsumerSteps
from reliq.transport.connection import Connection
from reliq.transport.store import Store


class Connections:
    """One connection that claims, and a second one that settles while a claim waits. Each has a lock.

    One caller claims at a time.
    """

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self.main = self._new()
        self.main.on_connect = self._connected
        self._second = self._new()
        self.lock = Lock()
        self._second_lock = Lock()
        self.claiming = False  #: a claim has the main connection, for up to a second
        self._named = True
        self._users: list[ConsumerSteps] = []

    def _new(self) -> Connection:
        return self._store.connection(connection_name(self._owner))

    @property
    def busy(self) -> bool:
        """Whether a claim has the main connection, or a call that this one has interrupted: its reply comes there."""
        return self.claiming or interrupts(self.lock)

    @contextmanager
    def second(self) -> Iterator[Connection]:
        """The connection for what goes on while a claim waits; another one where that was interrupted."""
        if not interrupts(self._second_lock):
            with self._second_lock:
                yield self._second
            return
        connection = self._new()
        try:
            yield connection
        finally:
            connection.close()

    def use(self, steps: ConsumerSteps) -> None:
        """Tell a consumer in Redis of each new main connection."""
        steps.connected(self._named)
        self._users.append(steps)

    def leave(self, steps: ConsumerSteps) -> None:
        """End the use by a consumer; the last one closes the connections."""
        self._users.remove(steps)
        if not self._users:
            self.main.close()
            self._second.close()

    def _connected(self, named: bool) -> None:
        self._named = named
        for steps in self._users:
            steps.connected(named)
