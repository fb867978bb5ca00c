"""Taskiq on reliq: `broker = ReliqBroker("redis://localhost:6379/0")`.

A task keeps its message under a renewed lease until its result is saved: a killed worker's tasks run again within
seconds, and one that kills its worker again and again ends in the dead letters.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator
from typing import Any

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.taskiq", "taskiq", error) from None

from reliq import Message
from reliq.aio import Reliq
from reliq.aio.consumer import Consumer
from reliq.contract import values
from reliq.errors import LeaseLost, ReliqError
from reliq.protocol.settlement import checked_lease
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.taskiq")

_WAIT = 30.0  #: seconds of one claim; a worker that is stopped does not wait for its end


class ReliqBroker(AsyncBroker):
    """A broker whose tasks are messages of one queue.

    `url`: Redis, as for reliq.Reliq; default RELIQ_URL. `queue`: its name. `lease`: how long a hung worker keeps its
    tasks. `prefetch`: messages that a worker claims at once. `monitor`: whether a worker runs a monitor in a thread.
    A label `delay` (seconds) of a task delays it, `ttl` (seconds) limits how long it may wait, `priority` is high,
    normal or low, and tasks with the same `key` run one at a time and in order.
    """

    def __init__(
        self,
        url: str | None = None,
        queue: str = "taskiq",
        *,
        lease: values.Duration = values.LEASE,
        prefetch: int = 1,
        monitor: bool = True,
        reconnect_grace: values.Duration = values.RECONNECT_GRACE,
        max_body: values.Size | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.app = Reliq(url, max_body=max_body)
        self.queue = self.app.queue(queue)
        self._lease = checked_lease(lease)
        self._prefetch = values.whole(prefetch, "prefetch", 1, values.MAX_BATCH)
        self._grace = reconnect_grace
        self._with_monitor = monitor
        self._monitor: Any = None

    async def startup(self) -> None:
        await super().startup()
        if self.is_worker_process and self._with_monitor:
            from reliq_monitor import MonitorThread

            store = Store(self.app.url, allow_eviction=self.app.allow_eviction)
            self._monitor = MonitorThread(store, reconnect_grace=self._grace)
            self._monitor.start()

    async def shutdown(self) -> None:
        if self._monitor is not None:
            self._monitor.stop()
            self._monitor = None
        await super().shutdown()
        await self.app.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; raises reliq's errors."""
        labels = message.labels
        options: dict[str, Any] = {name: labels[name] for name in ("key", "priority") if labels.get(name)}
        options |= {name: float(labels[name]) for name in ("delay", "ttl") if labels.get(name)}
        headers = {"task": message.task_name, "task_id": message.task_id}
        await self.queue.send(message.message, headers=headers, **options)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks; those that are not acked when this ends go back to the queue."""
        outage = OutageLog(log, f"claiming from {self.queue.name}")
        async with self.queue.consumer(self._lease) as consumer:
            while True:
                for message in await self._claim(consumer, outage):
                    yield AckableMessage(data=message.body, ack=functools.partial(self._ack, consumer, message))

    async def _claim(self, consumer: Consumer, outage: OutageLog) -> list[Message]:
        try:
            messages = await consumer.claim(self._prefetch, wait=_WAIT)
        except ReliqError as error:
            outage.failed(error)
            await asyncio.sleep(values.RECONNECT_PAUSE)  # a refusal comes at once, and would come again
            return []
        outage.over()
        return messages

    async def _ack(self, consumer: Consumer, message: Message) -> None:
        with contextlib.suppress(LeaseLost):  # this task may run elsewhere; the monitor has counted it
            await consumer.ack(message)
