"""Taskiq on reliq: `broker = ReliqBroker("redis://localhost:6379/0")`.

A task keeps its message under a renewed lease until its result is saved: a killed worker's tasks run again within
seconds, and one that kills its worker again and again ends in the dead letters.
"""

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

try:
    from taskiq import AckableMessage, AsyncBroker, AsyncTaskiqDecoratedTask, BrokerMessage
except ImportError as error:
    from reliq.extras import missing_extra

    raise missing_extra("reliq.contrib.taskiq", "taskiq", error) from None

from reliq import Message
from reliq.aio import Reliq
from reliq.aio.consumer import Consumer
from reliq.contract import values
from reliq.errors import LeaseLost, ReliqError
from reliq.model.backoff import exponential
from reliq.protocol.settlement import checked_lease
from reliq.runtime.moment import Moment
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

log = logging.getLogger("reliq.taskiq")

_WAIT = 30.0  #: seconds of one claim; a worker that is stopped does not wait for its end
_PATIENCE = 0.05  #: seconds for which a redelivered task that cannot start waits here
_PUT_BACK_FOR = 0.25  #: seconds for which it is then left to other workers
_BACKOFF = exponential()  #: of tasks around which something raised, or that a worker does not know


def _number(text: str) -> float | str:
    """Return the number that a label is, or its text, for reliq to read or to refuse with its name."""
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


_NOT_GIVEN = (None, "", "None")  #: a label of a task; taskiq makes a text of each value
#: How the options of a send are read from the labels of a task.
_READ: dict[str, Callable[[str], Any]] = {
    "key": str, "limit_key": str, "priority": str, "delay": _number, "ttl": _number, "cost": _number,
}  # fmt: skip


class ReliqBroker(AsyncBroker):
    """A broker whose tasks are messages of one queue.

    `url`: Redis, as for reliq.Reliq; default RELIQ_URL. `queue`: its name. `lease`: how long a hung worker keeps its
    tasks. `prefetch`: messages that a worker claims at once. `monitor`: whether a worker runs a monitor in a thread.
    A label `delay` (seconds, or "1h") of a task delays it, `ttl` limits how long it may wait, `priority` is high,
    normal or low, tasks with the same `key` run one at a time and in order, `limit_key` and `cost` count for the limits
    of the queue. No label deduplicates: the retries of taskiq are sends with the labels of the task.
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
        self._consumers = contextlib.AsyncExitStack()

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
        try:
            await self._consumers.aclose()
        except ReliqError as error:
            log.warning("not_unregistered error=%s: the monitor returns what it held when the lease ends", error)
        await super().shutdown()
        await self.app.close()

    def find_task(self, task_name: str) -> AsyncTaskiqDecoratedTask[Any, Any] | None:
        """Return a task; raises LookupError in a worker that lacks it, where taskiq acks the message of an unknown one.

        A newer worker may know it, as in a rolling deployment: it is tried again.
        """
        task = super().find_task(task_name)
        if task is None and self.is_worker_process:
            raise LookupError(f"this worker has no task {task_name!r}: is its module imported?")
        return _ending(task) if task is not None and self.is_worker_process else task

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task; raises reliq's errors."""
        labels = {name: str(value) for name, value in message.labels.items()}
        options = {name: _READ[name](labels[name]) for name in _READ if labels.get(name) not in _NOT_GIVEN}
        headers = {"task": message.task_name, "task_id": message.task_id}
        await self.queue.send(message.message, headers=headers, **options)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks. Taskiq ends this before its running tasks: what is not acked goes back in `shutdown`."""
        outage = OutageLog(log, f"claiming from {self.queue.name}")
        tasks = _Tasks(await self._consumers.enter_async_context(self.queue.consumer(self._lease)))
        try:
            while True:
                if tasks.one_runs_alone:
                    await tasks.wait_for_one(_WAIT)
                elif not tasks.claimed:
                    tasks.claimed.extend(await self._claim(tasks.consumer, outage))
                while await self._keep_own(tasks, outage) and (message := tasks.next_to_start()) is not None:
                    if (error := self._misread(message)) is None:
                        yield tasks.delivery_of(message)
                    else:
                        await tasks.bury(message, error)
                if tasks.claimed and not await tasks.wait_for_one(_PATIENCE):
                    await tasks.give_way()
        finally:
            tasks.over = True
            await tasks.put_back(list(tasks.claimed))

    def _misread(self, message: Message) -> Exception | None:
        """Return the error of a message that the formatter cannot read: taskiq acks it, and it would be lost."""
        try:
            self.formatter.loads(message.body).parse_labels()
        except Exception as error:  # noqa: BLE001  the formatter may be anyone's
            return error
        return None

    async def _keep_own(self, tasks: "_Tasks", outage: OutageLog) -> bool:
        """Forget claimed tasks that others have by now; return whether the rest may start."""
        try:
            await tasks.keep_own()
        except ReliqError as error:
            outage.failed(error)
            await asyncio.sleep(values.RECONNECT_PAUSE)
            return False
        return True

    async def _claim(self, consumer: Consumer, outage: OutageLog) -> list[Message]:
        try:
            messages = await consumer.claim(self._prefetch, wait=_WAIT)
        except ReliqError as error:
            outage.failed(error)
            await asyncio.sleep(values.RECONNECT_PAUSE)  # a refusal comes at once, and would come again
            return []
        outage.over()
        return messages


def _ending(task: AsyncTaskiqDecoratedTask[Any, Any]) -> AsyncTaskiqDecoratedTask[Any, Any]:
    """Return a task for a worker: before Python 3.12, a `def` that raises StopIteration in a thread never ends."""
    if inspect.iscoroutinefunction(task.original_func):  # there Python itself makes a RuntimeError of it
        return task
    ending = copy.copy(task)
    run = functools.partial(_ended, task.original_func)  # a process pool can pickle it
    ending.original_func = functools.update_wrapper(run, task.original_func)
    return ending


def _ended(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("task raised StopIteration") from error


class _Delivery(AckableMessage):
    """A message for taskiq, which says in which asyncio task taskiq runs it: in the one that reads its data."""

    read_in: Callable[[asyncio.Task[Any] | None], None]

    def __getattribute__(self, name: str) -> Any:
        if name == "data":
            self.read_in(asyncio.current_task())
        return super().__getattribute__(name)


class _Tasks:
    """The tasks that one `listen` has claimed.

    A killed worker's tasks come again, redelivered, and the monitor charges the oldest of those that a worker held when
    it died. So one of them runs at a time, and one that was charged before runs alone, as in a worker of reliq.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.claimed: deque[Message] = deque()  #: and not yielded
        self.over = False  #: nothing is claimed any more, because the worker stops
        self._running: dict[bytes, Message] = {}  #: yielded, and not acked
        self._sure_until = Moment.never()  #: that the lease lasts
        self._ended = asyncio.Event()
        self._outage = OutageLog(log, "acking")
        self._settling: set[asyncio.Task[None]] = set()  #: asyncio itself keeps no task alive

    @property
    def one_runs_alone(self) -> bool:
        """Whether nothing else starts before a running task has ended."""
        return any(one.deliveries for one in self._running.values())

    async def keep_own(self) -> None:
        """Forget the claimed ones that others have by now: this process may have been suspended. Raises ReliqError."""
        if self.claimed and self._sure_until.passed():
            asked_at = Moment.now()
            await self.consumer.heartbeat()
            self._sure_until = asked_at.after(self.consumer.lease / 2)
        self.claimed = deque(one for one in self.claimed if not one.lost)

    def next_to_start(self) -> Message | None:
        """Take a claimed message that may start now."""
        for message in self.claimed:
            if self._may_start(message):
                self.claimed.remove(message)
                self._running[message.element] = message
                return message
        return None

    def _may_start(self, message: Message) -> bool:
        running = self._running.values()
        if message.deliveries:
            return not running
        if any(one.deliveries for one in (*running, *self.claimed)):
            return False
        return not (message.redelivered and any(one.redelivered for one in running))

    async def wait_for_one(self, within: float) -> bool:
        """Wait at most `within` seconds until a running task has ended; return whether one has."""
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self._ended.wait()
        return False

    async def give_way(self) -> None:
        """Leave claimed messages that cannot start now to other workers."""
        await self.put_back([one for one in self.claimed if one.redelivered], _PUT_BACK_FOR)
        if self.one_runs_alone:
            await self.put_back(list(self.claimed))

    async def put_back(self, messages: Sequence[Message], delay: float = 0.0) -> None:
        """Put claimed messages back; `delay`: seconds until they are claimed again."""
        for message in messages:
            self.claimed.remove(message)
        with contextlib.suppress(ReliqError):  # they come with the next claim, or when the lease ends
            await self.consumer.release(*messages, delay=delay)

    def delivery_of(self, message: Message) -> AckableMessage:
        """Return the message as taskiq gets it."""

        def read_in(task: asyncio.Task[Any] | None) -> None:
            if task is not None:
                task.add_done_callback(functools.partial(self._look_after, message))

        return _Delivery(data=message.body, ack=functools.partial(self.ack, message), read_in=read_in)

    def _look_after(self, message: Message, task: asyncio.Task[Any]) -> None:
        """Settle a message that taskiq acks no more: something raised around its task, such as a middleware.

        One that the task itself was to ack (MANUAL) may still be acked; what a worker that stops has is given back.
        """
        if self.over or message.element not in self._running:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            settling = asyncio.create_task(self._settle_failed(message, error))
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)

    async def _settle_failed(self, message: Message, error: BaseException) -> None:
        delay, text = _BACKOFF(message.failures + 1, error), f"{type(error).__name__}: {error}"
        if delay is None:
            then, settle = "is a dead letter", functools.partial(self.consumer.dead, message, text)
        else:
            then = f"is tried again in {delay:.1f} s"
            settle = functools.partial(self.consumer.retry, message, delay, text)
        log.error("not_acked id=%s: %s outside of its task, so it %s", message.id, text, then, exc_info=error)
        await self._settle(message, settle)

    async def bury(self, message: Message, error: Exception) -> None:
        """Make a message that is no task a dead letter."""
        text = f"it cannot be read as a task: {type(error).__name__}: {error}"
        log.error("unreadable id=%s: %s; it is a dead letter now", message.id, text)
        await self._settle(message, functools.partial(self.consumer.dead, message, text))

    async def ack(self, message: Message) -> None:
        """Ack the message of a task that has ended; tries again while Redis is away, unless the worker stops."""
        await self._settle(message, functools.partial(self.consumer.ack, message))

    async def _settle(self, message: Message, settle: Callable[[], Awaitable[None]]) -> None:
        try:
            while True:
                try:
                    await settle()
                    self._outage.over()
                    return
                except LeaseLost:  # this task may run elsewhere; the monitor has counted it
                    return
                except ReliqError as error:
                    self._outage.failed(error)
                    if self.over:
                        log.error("not_acked id=%s: its task has ended, and runs again", message.id)
                        return
                    await asyncio.sleep(values.RECONNECT_PAUSE)
        finally:
            self._running.pop(message.element, None)
            self._ended.set()
