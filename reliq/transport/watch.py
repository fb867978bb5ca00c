"""Watch: waits for messages in many queues of one server at once, with one thread and one pair of connections.

A consumer of one queue waits in `BLMOVE`. With several queues or homes, a consumer that has nothing to do leaves the
waiting to the watch: it asks once whether `messages` exists, and the server tells when that changes
(`transport.notices`). A notice that never comes costs at most a slow look.

The server tells every consumer that waits, and one of them gets the message. So the loop of a worker that was told
waits in `BLMOVE` from then on, where exactly one is woken, at once, until its queue has been empty for a while
(`worker.idle`).
"""

import contextlib
import logging
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from reliq import forks, ops
from reliq.contract import values
from reliq.errors import ReliqError
from reliq.ops.topology import Node
from reliq.runtime.pieces import pieces
from reliq.transport.connection import Connection
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.notices import Notices

log = logging.getLogger("reliq.watch")

T = TypeVar("T")

_LOOKS_A_SECOND = 5  #: the most of these looks, unless that makes them slower than `_SLOWEST_LOOK`
_SLOWEST_LOOK = 60.0  #: seconds at most between two looks at a key; also those for a key that no caller waits for
_PAUSE = 0.5  #: seconds between two tries while the server is away
_TOGETHER = 100  #: keys in one call


class Connector(Protocol):
    """Makes connections for threads."""

    def connection(self, name: str = "") -> Connection:
        """Return a new connection."""

    def connection_to(self, node: Node, name: str = "") -> Connection:
        """Return a new connection to a node of the cluster."""

    def close(self) -> None:
        """Close what it keeps open itself."""


class SlotMap(Protocol):
    """Knows the node of a key."""

    @property
    def sharded(self) -> bool:
        """Whether it is a cluster."""

    def node_of(self, key: str) -> Node | None:
        """Return the node of a key; None without a cluster, or before its slot map was read."""

    def former(self, nodes: Mapping[T, Any]) -> list[T]:
        """Return those of these nodes that are no master any more."""


class Waiter(Protocol):
    """Waits for keys. The watch does not keep it: one that has ended is not notified."""

    def notify(self, key: str) -> None:
        """Note, in the thread of the watch, that a key may exist."""


class Watch(threading.Thread):
    """Waits for the keys of one server, or of one node of a cluster."""

    def __init__(self, connector: Connector, node: Node | None = None) -> None:
        super().__init__(name="reliq-watch", daemon=True)
        self._connection = connector.connection() if node is None else connector.connection_to(node)
        self._notices = self._connection.notices = Notices(self._note)
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, WeakSet[Waiter]] = defaultdict(WeakSet)  #: by key: whom to notify
        self._asked: dict[str, float] = {}  #: keys that do not exist, with when that was asked
        self._unasked: set[str] = set()  #: keys to ask about
        self._next_look = 0.0  #: when an answer may have been known for long enough, by time.monotonic()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.settimeout(0)
        self._stopping = False
        self.works = True  #: False: the server does not tell, and each caller waits by itself

    # --- the threads of the callers ---

    def add_waiter(self, keys: Sequence[str], waiter: Waiter) -> bool:
        """Notify the waiter of each key, once, as soon as it may exist; return False if that will never be."""
        with self._lock:
            if not self._usable:
                return False
            for key in keys:
                self._waiting[key].add(waiter)
            self._unasked.update(keys)
        self._wake()
        return True

    def not_known_empty(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that may exist; from now on those that do not are known."""
        with self._lock:
            some = [key for key in keys if key not in self._asked]
            if self._usable:
                self._unasked.update(some)
        if some:
            self._wake()
        return some

    @property
    def _usable(self) -> bool:
        """Whether the server tells, or it is time to ask whether it does by now."""
        return not self._stopping and (self.works or self._notices.wanted)

    def stop(self) -> None:
        """End; waiting callers go on. Thread-safe."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(b"x")

    # --- its own thread ---

    def run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._turn()
                except (ReliqError, ConnectionLost, TryAgain):
                    self._note(None)
                    self._release(list(self._waiting))  # they notice the outage themselves
                    time.sleep(_PAUSE)
        except Exception:
            log.exception("waiting for all queues at once failed: each is waited for on its own")
        finally:
            with self._lock:
                self._stopping = True
            self.works = False
            self._release(list(self._waiting))
            self._notices.end()
            self._connection.close()
            self._wake_reader.close()
            self._wake_writer.close()

    def _turn(self) -> None:
        """Ask what is to be asked, and wait for what changes."""
        now = time.monotonic()
        with self._lock:
            if now >= self._next_look:
                self._look(now)
            due, self._unasked = list(self._unasked), set()
        for some in pieces(due, _TOGETHER):
            self._ask(some)
        with self._lock:
            soonest = now if self._unasked else self._next_look
        self._notices.wait(max(0.0, soonest - time.monotonic()), self._wake_reader, self._connection.socket)
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        self._notices.take()
        if self._connection.connected and self._connection.readable:  # it has ended, and what it has read is forgotten
            self._connection.close()
            self._notices.end()

    def _look(self, now: float) -> None:
        """Forget the answers that have been known for long, so that those which callers wait for are asked again."""
        soonest = now + values.SLOW_LOOK
        for key, at in list(self._asked.items()):
            again_at = self._again_at(key, at)
            if now < again_at:
                soonest = min(soonest, again_at)
                continue
            del self._asked[key]
            if self._waiting.get(key):
                self._unasked.add(key)
            else:  # no call waits for it, and its queue may be gone; a later wait asks again
                self._waiting.pop(key, None)
        self._next_look = soonest

    def _again_at(self, key: str, asked_at: float) -> float:
        """Return when to ask about a key again: later if no caller waits for it, and it only shows who needs help."""
        slow = max(values.SLOW_LOOK, min(_SLOWEST_LOOK, len(self._waiting) / _LOOKS_A_SECOND))
        return asked_at + (slow if self._waiting.get(key) else _SLOWEST_LOOK)

    def _ask(self, keys: Sequence[str]) -> None:
        try:
            answers = self._connection.perform([ops.exists(key) for key in keys])
        except TryAgain:  # the slots of some have moved: their callers find out where
            if len(keys) == 1:
                self._release(keys)
                return
            for key in keys:
                self._ask([key])
            return
        self.works = self._notices.active
        now = time.monotonic()
        there = [key for key, exists in zip(keys, answers, strict=True) if exists]
        with self._lock:
            for key in keys:
                self._asked.pop(key, None)
            if self.works:
                self._next_look = min(self._next_look, now + values.SLOW_LOOK)
                self._asked.update((key, now) for key, exists in zip(keys, answers, strict=True) if not exists)
        self._release(keys if not self.works else there)

    def _release(self, keys: Iterable[str]) -> None:
        for key in keys:
            with self._lock:
                waiting = list(self._waiting.pop(key, ()))
            for waiter in waiting:
                waiter.notify(key)

    def _note(self, keys: list[str] | None) -> None:
        """Note what has changed: the callers that wait for it go on."""
        with self._lock:
            changed = list(self._asked) if keys is None else keys
            for key in changed:
                self._asked.pop(key, None)
        self._release(changed)


class Watches:
    """The watches of a process: one for each server that has keys to wait for, from the first such key on."""

    def __init__(self, server: SlotMap, connector: Connector | None) -> None:
        self._server = server
        self._connector = connector
        self._lock = threading.Lock()
        self._mark = forks.mark()
        self._over = False
        self.by_node: dict[Node | None, Watch] = {}

    def of(self, key: str) -> Watch | None:
        """Return the watch of the server that has this key; None where that is not known, or all have ended."""
        node = self._server.node_of(key)
        if self._connector is None or (self._server.sharded and node is None):
            return None
        if self._mark != forks.mark():  # a forked child has none of its parent's threads
            self._lock, self._mark, self.by_node = threading.Lock(), forks.mark(), {}
        with self._lock:
            if self._over:
                return None
            if node not in self.by_node:
                self.by_node[node] = Watch(self._connector, node)
                self.by_node[node].start()
            for one in self._server.former(self.by_node):
                self.by_node.pop(one).stop()  # who waits there goes on, and waits elsewhere
            return self.by_node.get(node)

    def add_waiter(self, keys: Iterable[str], waiter: Waiter) -> list[str]:
        """Notify the waiter of each key, once, as soon as it may exist; return those that are not watched."""
        by_watch: defaultdict[Watch | None, list[str]] = defaultdict(list)
        for key in keys:
            by_watch[self.of(key)].append(key)
        refused = [some for watch, some in by_watch.items() if watch is None or not watch.add_waiter(some, waiter)]
        return [key for some in refused for key in some]

    def stop(self) -> None:
        """End all of them; waiting callers go on."""
        with self._lock:
            self._over = True
        for watch in self.by_node.values():
            watch.stop()
        server: object = self._server
        if self._connector is not None and self._connector is not server:  # made for the watches alone
            self._connector.close()
