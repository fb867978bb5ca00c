"""What a running instance must keep up to get broadcasts: queues of its own, bound as long as it lives.

It says so again and again: a monitor drops the queues of an instance that was silent for too long, one that was
suspended for example, and it may come back.
"""

import logging
from collections.abc import Mapping

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import QueueKeys
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.worker")

_EVERY = 2.0  #: seconds
_MOST_BEHIND = 10_000  #: messages an instance may be behind; what comes then it does not get
_DEAD_KEPT = 100


class Broadcasts:
    """The queues of one instance, with the pattern each is bound to."""

    def __init__(self, store: Store, patterns: Mapping[str, str]) -> None:
        self._store = store
        self._queues = [QueueKeys(queue) for queue in patterns]
        self._bindings = [f"{queue} {pattern}" for queue, pattern in patterns.items()]
        self._outage = OutageLog(log, "broadcasts")
        self.every = _EVERY  #: seconds between two calls of `keep`

    def keep(self) -> None:
        """Be there, or be there again."""
        policy = ("max_length", _MOST_BEHIND, "overflow", "drop", "dead_max_count", _DEAD_KEPT)
        policies = [ops.command("HSET", keys.config, *policy) for keys in self._queues]
        self._call([*policies, *(ops.announce(keys.queue) for keys in self._queues), ops.bind("bind", self._bindings)])

    def end(self) -> None:
        """Take nothing more; the monitor removes the queues."""
        self._call([ops.bind("unbind", self._bindings)])

    def _call(self, wanted: list[ops.Op[int]]) -> None:
        if not self._bindings:
            return
        try:
            self._store.call(wanted, timeout=0)
            self._outage.over()
        except ReliqError as error:
            self._outage.failed(error)
