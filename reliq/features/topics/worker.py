"""Broadcasts for a running instance: its own queues, bound as long as it runs.

It announces itself repeatedly: a monitor drops the queues of an instance that was silent for too long, for example
because it was suspended, and the instance may come back.
"""

import logging

from reliq import ops
from reliq.errors import ReliqError
from reliq.features.topics import ops as own
from reliq.features.topics.model import Broadcast
from reliq.model.handlers import Handlers
from reliq.model.keys import QueueKeys
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.companion import Companion

log = logging.getLogger("reliq.worker")

_MOST_BEHIND = 10_000  #: messages an instance may be behind; it does not receive further ones


class Broadcasts(Companion):
    """The queues of one instance, each with its pattern."""

    def __init__(self, store: Store, handlers: Handlers, owner: str) -> None:
        self._store = store
        patterns = {one.of(owner): one.pattern for one in handlers.declared(Broadcast)}
        self.own = list(patterns)
        self._queues = [QueueKeys(handler.queue) for handler in patterns]
        self._bindings = [f"{handler.queue} {pattern}" for handler, pattern in patterns.items()]
        self._outage = OutageLog(log, "broadcasts")

    def start(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Register the queues, again if a monitor has dropped them."""
        policies = [own.keep_for_broadcasts(keys, _MOST_BEHIND) for keys in self._queues]
        self._call([*policies, *(ops.announce(keys.queue) for keys in self._queues), own.bind("bind", self._bindings)])

    def stop(self) -> None:
        """Unbind the queues; the monitor removes them."""
        self._call([own.bind("unbind", self._bindings)])

    def _call(self, wanted: list[ops.Op[int]]) -> None:
        if not self._bindings:
            return
        try:
            self._store.call(wanted, timeout=0)
            self._outage.over()
        except ReliqError as error:
            self._outage.failed(error)
