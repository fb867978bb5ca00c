"""The schedules of an application's decorators: stored in Redis when a worker starts."""

import logging

from reliq.errors import ReliqError
from reliq.features.schedules.model import Definition
from reliq.features.schedules.steps import ScheduleSteps, stamped
from reliq.model.handlers import Handlers
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store
from reliq.worker.companion import Companion

log = logging.getLogger("reliq.worker")


class DefinedSchedules(Companion):
    """The schedules that `@app.every` has defined. A schedule that is stored with the same definition is left alone."""

    on_bench = True

    def __init__(self, store: Store, handlers: Handlers, owner: str) -> None:
        self._store = store
        self._left = [stamped(one, handlers.versions.get(one.queue, 1)) for one in handlers.declared(Definition)]
        pool = ProducerPool()
        self._steps = ScheduleSteps(lambda queue: QueueSteps(queue, pool))
        self._outage = OutageLog(log, "schedules")

    def start(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Store the schedules, once; the next call tries again if Redis is away."""
        if not self._left:
            return
        try:
            changed = self._store.run(self._steps.put(self._left), timeout=0)
        except ReliqError as error:
            self._outage.failed(error)
            return
        self._outage.over()
        if changed:
            log.info("schedules stored=%d changed=%d", len(self._left), changed)
        self._left = []
