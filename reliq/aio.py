"""The same names for asyncio: `from reliq.aio import Reliq`, and `await` in front of what talks to Redis."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from reliq import ops, settings
from reliq.aiostore import AioStore
from reliq.app import Application
from reliq.consumer import checked_lease, lease_lost, settleable
from reliq.cycle import CycleSteps
from reliq.dead_letters import DeadLetter, DeadLetterSteps, Filter, Page, Progress, Redriven, checked_redrive, unwatched
from reliq.delayed import AioDelayed
from reliq.errors import InvalidSetting, OutcomeUnknown, ReliqError
from reliq.holdings import Holdings, buried, failure_now, released, retried
from reliq.keys import QueueKeys, check_name, connection_name, instance_of, new_owner
from reliq.message import Body, Message, NewMessage
from reliq.moment import Moment
from reliq.ops import Move
from reliq.prepared import CHECK_AFTER, CHECKS, AioPrepared, Care
from reliq.queue import Config, QueueSteps, Stats
from reliq.settings import Duration, seconds, whole
from reliq.topics import Binding, TopicStats, TopicSteps


class Reliq(Application):
    """An application on an event loop; see reliq.Reliq. Use it on one loop only."""

    def __init__(
        self,
        url: str | None = None,
        *,
        allow_eviction: bool | None = None,
        max_body: int = settings.BODY_LARGEST,
        send_timeout: Duration = settings.SEND_TIMEOUT,
        store: AioStore | None = None,
    ) -> None:
        super().__init__(url, allow_eviction, max_body)
        timeout = seconds(send_timeout, "send_timeout", shortest=0.01, longest=3600)
        self.store = store or AioStore(self.url, allow_eviction=self.allow_eviction, timeout=timeout)
        self._topics.sharded = self.store.sharded
        self._queues: dict[str, Queue] = {}
        self.topics = Topics(self.store, self._topics)

    def queue(self, name: str, *, of_broadcast: bool = False) -> "Queue":
        """The queue of this name; it exists from its first message on. Raises InvalidName.

        `of_broadcast`: also the queue of a running instance, to look at it; it goes with the instance.
        """
        queue = self._queues.get(name) if isinstance(name, str) else None
        if queue is None:
            queue = Queue(self.store, self._steps_of(name if of_broadcast else check_name(name)))
            if not of_broadcast:
                self._queues[name] = queue
        return queue

    async def publish(
        self,
        routing_key: str,
        body: Body | NewMessage,
        *,
        id: str | None = None,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        mandatory: bool = False,
        durability: str | None = None,
        retries: int | None = None,
    ) -> dict[str, str]:
        """Enqueue a copy into every queue that subscribes to the routing key; see reliq.Reliq.publish."""
        options = {"id": id, "delay": delay, "headers": headers, "ttl": ttl, "key": key, "priority": priority}
        message = self._topics.prepared(body, options)
        return await self.store.run(self._topics.publish(routing_key, message, mandatory, durability, retries))

    async def subscribe(self, queue: str, *patterns: str) -> bool:
        """Have the queue take what is published under keys that match; see reliq.Reliq.subscribe."""
        return await self.store.run(self._topics.bind(queue, *patterns))

    async def unsubscribe(self, queue: str, *patterns: str) -> bool:
        """End it; what the queue has got, it keeps. Whether there was something to end."""
        return await self.store.run(self._topics.unbind(queue, *patterns))

    async def queues(self, *, of_broadcasts: bool = False) -> list[str]:
        """The names of all queues this server has seen; those of running instances only if asked for."""
        names = await self.store.run(ops.one(ops.queue_names()))
        return names if of_broadcasts else [name for name in names if instance_of(name) is None]

    async def close(self) -> None:
        """Close the idle connections."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class Queue:
    """A queue; see reliq.Queue for what each method promises and raises."""

    def __init__(self, store: AioStore, steps: QueueSteps) -> None:
        self._store = store
        self._steps = steps
        self.name = steps.keys.queue
        self.dead = DeadLetters(store, steps.keys)
        self.delayed = AioDelayed(store, steps.keys)
        self.cycle = Cycle(store, steps.cycle)

    async def send(
        self,
        body: Body | NewMessage,
        *,
        id: str | None = None,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        window: Duration = "10m",
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> str:
        options = {
            "id": id, "delay": delay, "headers": headers, "dedup_key": dedup_key, "window": window, "ttl": ttl,
            "key": key, "priority": priority,
        }  # fmt: skip
        message = self._steps.prepared(body, options)
        (sent,) = await self._store.run(self._steps.send_many([message], durability, retries))
        return sent

    async def send_many(
        self,
        bodies: Iterable[Body | NewMessage],
        *,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> list[str]:
        options = {"delay": delay, "headers": headers, "ttl": ttl, "key": key, "priority": priority}
        messages = self._steps.prepared_many(bodies, options)
        return await self._store.run(self._steps.send_many(messages, durability, retries))

    async def prepare(
        self,
        body: Body | NewMessage,
        *,
        timeout: Duration = CHECK_AFTER,
        checks: int = CHECKS,
        id: str | None = None,
        delay: Duration = 0,
        headers: Mapping[str, str] | None = None,
        dedup_key: str | None = None,
        window: Duration = "10m",
        ttl: Duration | None = None,
        key: str | None = None,
        priority: str = "normal",
        durability: str | None = None,
        retries: int | None = None,
    ) -> AioPrepared:
        options = {
            "id": id, "delay": delay, "headers": headers, "dedup_key": dedup_key, "window": window, "ttl": ttl,
            "key": key, "priority": priority,
        }  # fmt: skip
        message, care = self._steps.prepared(body, options), Care(durability, retries)
        await self._store.run(self._steps.halves.prepare(message, timeout, checks, care))
        return AioPrepared(self._store, self._steps.halves, message.id, care)

    def prepared(self, id: str) -> AioPrepared:
        return AioPrepared(self._store, self._steps.halves, id)

    async def stats(self) -> Stats:
        return await self._store.run(self._steps.stats())

    async def config(self) -> Config:
        return await self._store.run(self._steps.config())

    async def configure(self, **changes: Any) -> Config:
        return await self._store.run(self._steps.configure(changes))

    async def pause(self) -> None:
        await self._store.run(self._steps.pause())

    async def resume(self) -> None:
        await self._store.run(self._steps.resume())

    async def purge(self) -> int:
        return await self._store.run(self._steps.purge())

    async def cancel(self, id: str) -> bool:
        return await self._store.run(self._steps.cancel(id))

    def consumer(self, lease: Duration = settings.LEASE) -> "Consumer":
        return Consumer(self._store, self._steps.keys, lease)

    def __repr__(self) -> str:
        return f"<aio.Queue {self.name} at {self._store.where}>"


class Cycle:
    """The members of a queue that are visited in turn; see reliq.Cycle."""

    def __init__(self, store: AioStore, steps: CycleSteps) -> None:
        self._store = store
        self._steps = steps

    async def add(self, *members: str) -> int:
        return await self._store.run(self._steps.add(members))

    async def remove(self, *members: str) -> int:
        return await self._store.run(self._steps.remove(members))

    async def members(self) -> list[str]:
        return await self._store.run(self._steps.members())


class Topics:
    """The bindings of all queues; see reliq.Topics."""

    def __init__(self, store: AioStore, steps: TopicSteps) -> None:
        self._store = store
        self._steps = steps

    async def match(self, routing_key: str) -> list[str]:
        return await self._store.run(self._steps.match(routing_key))

    async def list(self) -> list[Binding]:
        return await self._store.run(self._steps.list())

    async def set_alternate(self, queue: str | None) -> None:
        await self._store.run(self._steps.set_alternate(queue))

    async def stats(self) -> TopicStats:
        return await self._store.run(self._steps.stats())


class DeadLetters:
    """The dead letters of one queue; see reliq.DeadLetters."""

    def __init__(self, store: AioStore, keys: QueueKeys) -> None:
        self._store = store
        self._steps = DeadLetterSteps(keys)

    async def list(self, *, limit: int = 50, after: str | None = None, **filters: Any) -> Page:
        return await self._store.run(self._steps.page(Filter.of(**filters), limit, after))

    async def get(self, id: str) -> DeadLetter | None:
        return await self._store.run(self._steps.get(id))

    async def redrive(
        self,
        *,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        keep_failures: bool = False,
        stop_above: float | None = None,
        progress: Progress = unwatched,
        **filters: Any,
    ) -> Redriven:
        checked_redrive(rate, limit, stop_above)
        steps = self._steps.redrive(
            Filter.of(**filters), rate=rate, limit=limit, dry_run=dry_run, keep_failures=keep_failures,
            stop_above=stop_above, progress=progress,
        )  # fmt: skip
        return await self._store.run(steps)

    async def purge(self, *, all: bool = False, **filters: Any) -> int:
        return await self._store.run(self._steps.purge(Filter.of(**filters), all, "purged_dead"))


class Consumer:
    """Claims and settles by hand; see reliq.Consumer. One task at a time; a task renews the lease."""

    def __init__(self, store: AioStore, keys: QueueKeys, lease: Duration = settings.LEASE) -> None:
        self.lease = checked_lease(lease)
        self._store = store
        self._owner = new_owner()
        self._holdings = Holdings(keys, self._owner, self.lease)
        self._link = store.link(connection_name(self._owner))
        self._link.on_connect = self._holdings.connected
        self._beats = store.link(connection_name(self._owner))  # named as well: a monitor must see that it lives
        self._beating: asyncio.Task[None] | None = None
        self._claiming: set[asyncio.Task[list[Message]]] = set()
        self._closed = False
        self._lock = asyncio.Lock()
        self._beat_lock = asyncio.Lock()

    @property
    def id(self) -> str:
        return self._holdings.consumer

    async def __aenter__(self) -> Self:
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._closed = True
        try:
            async with self._lock:
                await self._store.run(self._holdings.leave(), self._link)
        finally:
            if self._beating is not None:
                self._beating.cancel()
            await self._link.close()
            await self._beats.close()

    async def claim(self, limit: int = 1, wait: Duration = 0) -> list[Message]:
        if self._closed:
            raise InvalidSetting("this consumer has ended with its `async with` block: make a new one")
        whole(limit, "limit", 1, settings.BATCH_LARGEST)
        until = time.monotonic() + seconds(wait, "wait")
        messages = await self._run(lambda: self._holdings.claim(limit))
        while not messages and (left := until - time.monotonic()) > 0.001:
            timeout = min(left, settings.BLOCK, self.lease / settings.HEARTBEATS_PER_LEASE)
            messages = await self._run(lambda timeout=timeout: self._holdings.wait(limit, timeout))  # type: ignore[misc]
        if messages and self._holdings.trusted_until.passed():  # suspended on the way: they may be others' by now
            await self.heartbeat()
        return [message for message in messages if not message.lost]

    async def _run(self, steps: Callable[[], ops.Steps[list[Message]]]) -> list[Message]:
        """Run a claim in a task of its own: cancelled half way, it would leave messages that no one knows.

        Where the caller is cancelled, however often, the claim goes on, and releases what it brings.
        """
        task = asyncio.ensure_future(self._locked(steps))
        self._claiming.add(task)  # the event loop itself holds its tasks only weakly
        task.add_done_callback(self._claiming.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            late = asyncio.ensure_future(self._release(task))
            self._claiming.add(late)
            late.add_done_callback(self._claiming.discard)
            await asyncio.shield(late)  # a second cancellation ends this waiting, and not the release
            raise

    async def _release(self, claim: "asyncio.Task[list[Message]]") -> list[Message]:
        """Give back what a claim brings whose caller is gone; what cannot be given back now is with the context."""
        with contextlib.suppress(ReliqError):
            await self.release(*await claim)
        return []

    async def _locked(self, steps: Callable[[], ops.Steps[list[Message]]]) -> list[Message]:
        async with self._lock:
            try:
                return await self._store.run(steps(), self._link)
            except OutcomeUnknown:  # the second try reads back what the first one moved
                return await self._store.run(steps(), self._link)

    async def ack(self, *messages: Message) -> None:
        await self._settle(messages)

    async def retry(self, message: Message, delay: Duration = 0, error: str = "retried by its consumer") -> None:
        failure = failure_now(self.id, "Retry", error)
        await self._settle((message,), lambda one: retried(one, failure, seconds(delay, "delay")))

    async def dead(self, message: Message, reason: str) -> None:
        failure = failure_now(self.id, "Dead", str(reason))
        await self._settle((message,), lambda one: buried(one, failure, "rejected"))

    async def release(self, *messages: Message) -> None:
        await self._settle(messages, released)

    async def heartbeat(self) -> bool:
        if not self._holdings.alive:
            return False
        async with self._beat_lock:
            consumer, sent_at = self.id, Moment.now()
            alive: bool = await self._store.call(ops.heartbeat(self._holdings.keys, consumer, self.lease), self._beats)
        if alive:
            self._holdings.renewed(sent_at)
        elif consumer == self.id:
            self._holdings.end_life()
        return alive

    async def _settle(self, messages: Sequence[Message], move: Callable[[Message], Move] | None = None) -> None:
        if not messages:
            return
        acks, moves = settleable(self._holdings, messages, move)
        async with self._lock:
            codes, _ = await self._store.run(self._holdings.settle(acks, moves), self._link)
        lost = len(messages) - len(codes) + codes.count("l")
        if lost:
            raise lease_lost(self._holdings.keys.queue, lost, len(messages))

    async def _beat(self) -> None:
        while True:
            try:
                await self.heartbeat()
            except ReliqError:
                await asyncio.sleep(settings.RECONNECT_PAUSE)
            else:
                await self._beats.wait_closed(self.lease / settings.HEARTBEATS_PER_LEASE)
