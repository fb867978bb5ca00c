"""A guard: a small process that returns a worker's messages at once when that worker is killed.

A monitor cannot tell a killed worker from one whose connections were cut, so it waits for a grace. The guard can: the
worker holds the only write end of a pipe, which the kernel closes with it, whatever ended it. It is the same that the
parent of `reliq worker --processes` does for its children.
"""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from reliq import forks
from reliq.errors import ReliqError
from reliq.transport.store import Store

log = logging.getLogger("reliq.guard")

_TRY_FOR = 10.0  #: seconds in which Redis may be away; then the messages are left to the monitor
_TRY_EVERY = 0.2
_END = 2.0  #: seconds to wait for the guard's end


class Guard:
    """The guard of this process, for one Redis."""

    def __init__(self, url: str, *, allow_eviction: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reliq.contrib.guard"],
            bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._known: set[str] = set()
        _guards.add(self)
        self._tell({"url": url, "allow_eviction": allow_eviction})

    def watch(self, owner: str) -> None:
        """Have the messages of a holder returned when this process ends."""
        if owner not in self._known:
            self._known.add(owner)
            self._tell(owner)

    def leave(self, owner: str) -> None:
        """Watch a holder no more: it has ended, and holds nothing."""
        self._known.discard(owner)
        self._tell([owner])

    def end(self) -> None:
        """End the guard: this process holds nothing any more."""
        self._let_go()
        try:
            self._process.wait(_END)
        except subprocess.TimeoutExpired:  # it still starts, or Redis is away
            threading.Thread(target=self._process.wait, name="reliq-guard-end", daemon=True).start()

    def _tell(self, value: object) -> None:
        pipe = self._process.stdin
        with suppress(OSError, ValueError):  # the guard was killed: the monitor does its work, later
            if pipe is not None:
                pipe.write(json.dumps(value).encode() + b"\n")

    def _let_go(self) -> None:
        """Close the write end; in a forked child a copy of it, which would outlive the parent."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()


_guards: WeakSet[Guard] = WeakSet()


def _let_go_of_all() -> None:
    for guard in list(_guards):
        guard._let_go()  # noqa: SLF001


forks.in_every_child(_let_go_of_all)


def main(lines: Iterable[bytes]) -> None:
    """Read the address and the owners until the worker has ended; then return what these still hold."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a service; the guard ends after the worker
    place: dict[str, Any] = {}
    owners: dict[str, None] = {}  # in their order
    for line in lines:
        match json.loads(line) if line.endswith(b"\n") else None:
            case dict() as place:
                pass
            case [owner]:
                owners.pop(owner, None)
            case str() as owner:
                owners[owner] = None
    if owners:
        store = Store(place["url"], allow_eviction=place["allow_eviction"])
        for owner in owners:
            _take_back(store, owner)
        store.close()


def _take_back(store: Store, owner: str) -> None:
    from reliq_monitor.reclaim import take_back_owner

    until = time.monotonic() + _TRY_FOR
    while True:
        try:
            returned = sum(store.run(take_back_owner(owner)).values())
        except ReliqError as error:
            if time.monotonic() > until:
                log.warning("died worker=%s error=%s: the monitor returns its messages", owner, error)
                return
            time.sleep(_TRY_EVERY)
        else:
            if returned:
                log.warning("died worker=%s returned=%d", owner, returned)
            return


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    import reliq_monitor.reclaim as _at_hand  # noqa: F401  there is no time for it later

    main(sys.stdin.buffer)
