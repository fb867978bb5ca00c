"""The watchdog: settles for loops that wait for slow handlers, and ends runs that exceed their time limit."""

import logging
import threading
from collections.abc import Collection

from reliq.errors import ReliqError
from reliq.model.keys import connection_name
from reliq.runtime.failures import failures
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.loop import Loop

log = logging.getLogger("reliq.worker")

_WATCH_EVERY = 0.025
_ERROR_PAUSE = 0.5  #: seconds
_ENDS = 10.0  #: seconds; a socket's timeout, and some more


class Watchdog(threading.Thread):
    """Watches the loops of a process that have a thread, forty times a second."""

    def __init__(self, store: Store, loops: Collection[Loop], owner: str) -> None:
        super().__init__(name="reliq-watchdog", daemon=True)
        self._connection = store.connection(connection_name(owner))
        self._loops = loops
        self._stopping = threading.Event()

    def run(self) -> None:
        outage = OutageLog(log, "watchdog")
        while not self._stopping.wait(_WATCH_EVERY):
            failures.flush()
            for loop in list(self._loops):
                try:
                    if self.watch(loop):
                        outage.over()
                except ReliqError as error:
                    outage.failed(error)
                    self._stopping.wait(_ERROR_PAUSE)
                except Exception:
                    log.exception("watch queue=%s failed; retrying", loop.runner.handler.queue)
                    self._connection.close()
                    self._stopping.wait(_ERROR_PAUSE)
        self._connection.close()

    def watch(self, loop: Loop) -> bool:
        """Do for one loop what its own thread cannot do while a handler runs; return whether Redis has answered."""
        with loop.exchange.watched() as here:
            if not here:
                return False
            loop.runner.end_overdue()
            return loop.exchange.relieve_if_stuck(self._connection)

    def stop(self) -> None:
        """Stop, and wait until pending settles are done."""
        self._stopping.set()
        self.join(timeout=_ENDS)
