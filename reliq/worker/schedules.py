"""The schedules of an application's decorators: stored in Redis when a worker starts."""

import logging
from collections.abc import Sequence

from reliq.errors import ReliqError
from reliq.model.schedule import Definition
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.protocol.schedules import ScheduleSteps
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.worker")


class DefinedSchedules:
    """The schedules that `@app.every` has defined. A schedule that is stored with the same definition is left alone."""

    def __init__(self, store: Store, definitions: Sequence[Definition]) -> None:
        self._store = store
        self._left = list(definitions)
        pool = ProducerPool()
        self._steps = ScheduleSteps(lambda queue: QueueSteps(queue, pool))
        self._outage = OutageLog(log, "schedules")

    def store(self) -> None:
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
