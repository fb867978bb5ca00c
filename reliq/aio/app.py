"""The application on an event loop; see reliq.client.app."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from reliq import ops
from reliq.aio.queue import Queue
from reliq.aio.topics import Topics
from reliq.model import settings
from reliq.model.keys import check_name, instance_of
from reliq.model.outgoing import Body, NewMessage
from reliq.model.settings import Duration, seconds
from reliq.protocol.application import Application
from reliq.transport.aiostore import AioStore


class Reliq(Application):
    """An application on an event loop; see reliq.Reliq. Use it on one loop only."""

    def __init__(
        self,
        url: str | None = None,
        *,
        allow_eviction: bool | None = None,
        max_body: int = settings.MAX_BODY_BYTES,
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
