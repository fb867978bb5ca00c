"""Broadcast cleanup: removes the broadcast queues of worker processes that are gone."""

import logging
import time
from collections.abc import Container

from reliq import ops
from reliq.features.topics import ops as own
from reliq.model.keys import QueueKeys, instance_of
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

log = logging.getLogger("reliq.monitor")

_GRACE = 3.0  #: seconds; producers cache bindings for half a second, and a starting worker needs a moment, too


class BroadcastCleanup(Duty[None]):
    """Remembers since when a broadcast queue has had no consumer.

    The name is not enough: only a queue with the policy that every running instance sets (`overflow drop`) is dropped.
    """

    name = "broadcast"
    effect = "broadcast queues of worker processes that are gone are not removed"
    seeks = "consumers"

    def __init__(self) -> None:
        self._alone_since: dict[str, float] = {}
        self._awaits_since: dict[str, float] = {}  #: of queues that had no consumer yet

    def keep(self, queues: Container[str]) -> None:
        """Forget the observations of all other queues."""
        self._alone_since = {queue: since for queue, since in self._alone_since.items() if queue in queues}
        self._awaits_since = {queue: since for queue, since in self._awaits_since.items() if queue in queues}

    def turn(self, survey: Survey) -> Steps[None]:
        """Look at the broadcast queues."""
        inhabited = {keys.queue for keys in survey.found[self.seeks]}
        for keys in survey.queues:
            if instance_of(keys.queue) is not None:
                steps = self._look(keys, alone=keys.queue not in inhabited)
                yield from survey.attempts.of_queue(self.name, keys, steps, None, other_server=True)

    def _look(self, keys: QueueKeys, alone: bool) -> Steps[None]:
        """Unbind the queue of a vanished instance, and drop it a while later. `alone`: it has no consumers."""
        queue = keys.queue
        if not alone:
            self._alone_since.pop(queue, None)
            self._awaits_since.pop(queue, None)
            return
        now = time.monotonic()
        since = self._alone_since.setdefault(queue, now)
        if now - since < _GRACE:
            return
        drops, awaited = yield [own.is_for_broadcasts(keys), own.awaited(keys)]
        if not drops:
            return
        if awaited and now - self._awaits_since.setdefault(queue, since) < awaited:
            self._alone_since[queue] = now  # its first consumer may be about to register
            return
        bindings = [binding for binding, bound in (yield own.bound()).items() if bound == queue]
        if bindings:
            self._alone_since[queue] = time.monotonic()  # producers may still use the bindings
            yield own.bind("unbind", bindings)
            return
        yield ops.drop_queue(keys)
        del self._alone_since[queue]
        self._awaits_since.pop(queue, None)
        log.info("dropped queue=%s: its instance is gone", queue)
