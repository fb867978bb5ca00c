"""A queue; see reliq.client.queue."""

from collections.abc import Iterable, Mapping
from typing import Any

from reliq.aio.consumer import Consumer
from reliq.aio.cycle import Cycle
from reliq.aio.dead_letters import DeadLetters
from reliq.aio.delayed import Delayed
from reliq.aio.prepared import Prepared
from reliq.model import settings
from reliq.model.outgoing import Body, NewMessage
from reliq.model.settings import Duration
from reliq.protocol.prepared import CHECK_AFTER, CHECKS, DecisionOptions
from reliq.protocol.queue import Config, QueueSteps, Stats
from reliq.transport.aiostore import AioStore


class Queue:
    """A queue; see reliq.Queue for what each method promises and raises."""

    def __init__(self, store: AioStore, steps: QueueSteps) -> None:
        self._store = store
        self._steps = steps
        self.name = steps.keys.queue
        self.dead = DeadLetters(store, steps.keys)
        self.delayed = Delayed(store, steps.keys)
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
    ) -> Prepared:
        options = {
            "id": id, "delay": delay, "headers": headers, "dedup_key": dedup_key, "window": window, "ttl": ttl,
            "key": key, "priority": priority,
        }  # fmt: skip
        message, care = self._steps.prepared(body, options), DecisionOptions(durability, retries)
        await self._store.run(self._steps.prepared_records.prepare(message, timeout, checks, care))
        return Prepared(self._store, self._steps.prepared_records, message.id, care)

    def prepared(self, id: str) -> Prepared:
        return Prepared(self._store, self._steps.prepared_records, id)

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
