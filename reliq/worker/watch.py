"""Watch: waits for messages in many queues of one server at once, with one thread and one pair of connections.

A worker of one queue waits in `BLMOVE`. With several queues or homes, each loop that has nothing to do leaves the
waiting to the watch: it asks once whether `messages` exists, and the server tells when that changes
(`transport.notices`). A notice that never comes costs at most `SLOW_LOOK`.

The server tells every worker that waits, and one of them gets the message. So a loop that was told waits in `BLMOVE`
from then on, where exactly one is woken, at once, until its queue has been empty for a while (`worker.idle`).
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from reliq import ops
from reliq.errors import ReliqError
from reliq.ops.topology import Node
from reliq.runtime.pieces import pieces
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.notices import Notices
from reliq.transport.store import Store

log = logging.getLogger("reliq.worker")

SLOW_LOOK = 10.0  #: seconds after which a key is asked about again, whatever the server says
_OTHERS_LOOK = 60.0  #: seconds, for a key that no loop here waits for
_PAUSE = 0.5  #: seconds between two tries while the server is away
_TOGETHER = 100  #: keys in one call


class Watch(threading.Thread):
    """Waits for the keys of one server, or of one node of a cluster."""

    def __init__(self, store: Store, node: Node | None = None) -> None:
        super().__init__(name="reliq-watch", daemon=True)
        self._connection = store.connection() if node is None else store.connection_to(node)
        self._notices = self._connection.notices = Notices(self._note)
        self._lock = threading.Lock()
        self._loops: dict[str, Callable[[], None]] = {}  #: by key: lets the loop go on that waits for it
        self._asked: dict[str, float] = {}  #: keys that do not exist, with when that was asked
        self._unasked: set[str] = set()  #: keys to ask about
        self._ear, self._mouth = socket.socketpair()
        self._ear.settimeout(0)
        self._stopping = False
        self.works = True  #: False: the server does not tell, and each loop waits for itself

    # --- the loops' threads ---

    def tell(self, key: str, go_on: Callable[[], None]) -> bool:
        """Call `go_on`, in the thread of the watch, as soon as the key may exist; return False if it never will."""
        with self._lock:
            if not self._usable:
                return False
            self._loops[key] = go_on
            self._unasked.add(key)
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
        """End; waiting loops go on. Thread-safe."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._mouth.send(b"x")

    # --- its own thread ---

    def run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._turn()
                except (ReliqError, ConnectionLost, TryAgain):
                    self._note(None)
                    self._release(list(self._loops))  # they notice the outage themselves
                    time.sleep(_PAUSE)
        except Exception:
            log.exception("waiting for all queues at once failed: each loop waits on its own")
        finally:
            with self._lock:
                self._stopping = True
            self.works = False
            self._release(list(self._loops))
            self._notices.end()
            self._connection.close()
            self._ear.close()
            self._mouth.close()

    def _turn(self) -> None:
        """Ask what is to be asked, and wait for what changes."""
        now = time.monotonic()
        with self._lock:
            for key, at in list(self._asked.items()):
                if now >= self._again_at(key, at):
                    del self._asked[key]
                    self._unasked.add(key)
            due, self._unasked = list(self._unasked), set()
        for some in pieces(due, _TOGETHER):
            self._ask(some)
        with self._lock:
            waits = (self._again_at(key, at) for key, at in self._asked.items())
            soonest = now if self._unasked else min(waits, default=now + SLOW_LOOK)
        self._notices.wait(max(0.0, soonest - time.monotonic()), self._ear)
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(4096)
        self._notices.take()

    def _again_at(self, key: str, asked_at: float) -> float:
        """Return when to ask about a key again: later where no loop waits, and only help for others depends on it."""
        return asked_at + (SLOW_LOOK if key in self._loops else _OTHERS_LOOK)

    def _ask(self, keys: Sequence[str]) -> None:
        try:
            answers = self._connection.perform([ops.exists(key) for key in keys])
        except TryAgain:  # the slots of some have moved: these loops find out where
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
                self._asked.update((key, now) for key, exists in zip(keys, answers, strict=True) if not exists)
        self._release(keys if not self.works else there)

    def _release(self, keys: Iterable[str]) -> None:
        for key in keys:
            if (go_on := self._loops.pop(key, None)) is not None:
                go_on()

    def _note(self, keys: list[str] | None) -> None:
        """Note what has changed: the loops that wait for it go on."""
        with self._lock:
            changed = list(self._asked) if keys is None else keys
            for key in changed:
                self._asked.pop(key, None)
        self._release(changed)
