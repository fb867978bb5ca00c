"""What the idle loops of a worker share: on each server one thread that waits for all of them, and one connection.

A loop has a thread and a connection only while its queue has messages, or had some lately. Then it leaves both: the
watch of its server starts it again, with a connection that another loop has left.
"""

import contextlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from reliq.contract import values
from reliq.model.keys import QueueKeys
from reliq.ops.topology import Node
from reliq.transport.connection import Connection
from reliq.transport.store import Store
from reliq.transport.watch import Watches
from reliq.worker.loop import Loop, Shared

_SPARE_MOST = 8  #: connections to a server that no loop has; a loop that finds none has to connect first
_SPARE_FOR = 60.0  #: seconds after which all of these but one are closed


class Idle:
    """The idle loops of one worker."""

    def __init__(self, store: Store, shared: Shared, start: Callable[[Loop], None]) -> None:
        """`start` runs a loop in a thread of its own."""
        self._store = store
        self._shared = shared
        self._start = start
        self._resting: set[Loop] = set()
        self._waiting: dict[str, Loop] = {}  #: by the key that a loop waits for, or has waited for
        self._watches = Watches(store, store.connector())
        self._spare: defaultdict[Node | None, deque[tuple[Connection, float]]] = defaultdict(deque)  #: and since when
        self._lock = threading.Lock()
        self._over = False

    def rest(self, loop: Loop) -> bool:
        """Leave the waiting for messages to the watch; called by the loop's thread, which then ends.

        Return False if it goes on: the server does not tell, or there were messages lately, when BLMOVE is faster.
        """
        exchange, key = loop.exchange, loop.exchange.steps.awaited
        watch = self._watches.of(key) if exchange.quiet_for(values.EMPTY_FOR) else None
        if watch is None:
            return False
        if (connection := exchange.give_connection()) is not None:  # before another thread may wake the loop
            self._spare[self._store.node_of(key)].append((connection, time.monotonic()))
        with self._lock:
            if self._over:
                return False
            self._shared.working.discard(loop)
            self._resting.add(loop)
        self._waiting[key] = loop
        if watch.add_waiter([key], self):
            return True
        if not self._taken(loop):  # it was woken meanwhile, for another reason
            return True
        self._shared.working.add(loop)
        return False

    def notify(self, key: str) -> None:
        """Wake the loop that waits for a key; called in the thread of the watch."""
        self.wake(self._waiting[key])

    def wake(self, loop: Loop) -> None:
        """Let a loop that rests go on. Thread-safe."""
        if not self._taken(loop):
            return
        with contextlib.suppress(IndexError):
            connection, _ = self._spare[self._store.node_of(loop.exchange.steps.awaited)].pop()
            loop.exchange.take_connection(connection)
        loop.exchange.steps.came_at = time.monotonic()
        self._start(loop)

    def look(self) -> None:
        """Wake the loops that have something else to do than wait for messages, and close what none has needed."""
        for loop in list(self._resting):
            if loop.stopping or loop.runner.paused or not loop.exchange.steps.rests:
                self.wake(loop)
        for node in self._store.former(self._spare):
            for connection, _ in self._spare.pop(node):
                connection.close()
        for spare in list(self._spare.values()):
            with contextlib.suppress(IndexError):  # loops take some meanwhile
                while len(spare) > _SPARE_MOST or (len(spare) > 1 and time.monotonic() - spare[0][1] > _SPARE_FOR):
                    spare.popleft()[0].close()

    def end(self) -> None:
        """Wake all loops, and let none rest any more."""
        with self._lock:
            self._over = True
        self._watches.stop()
        for loop in list(self._resting):
            self.wake(loop)

    def close(self) -> None:
        """Close the connections that no loop has."""
        for spare in self._spare.values():
            while spare:
                spare.pop()[0].close()

    def not_known_empty(self, homes: list[QueueKeys]) -> list[QueueKeys]:
        """Return those of these homes that may have messages."""
        found: list[QueueKeys] = []
        for keys in homes:
            watch = self._watches.of(keys.messages)
            found += [keys] if watch is None or watch.not_known_empty([keys.messages]) else []
        return found

    def _taken(self, loop: Loop) -> bool:
        """Whether it is for this caller to let the loop go on."""
        with self._lock:
            rested = loop in self._resting
            self._resting.discard(loop)
        return rested
