"""The application: queues, topics and handlers of one Redis."""

from types import TracebackType
from typing import Self

from reliq.aio.queue import Queue
from reliq.contract import values
from reliq.contract.values import Duration, Size
from reliq.features.batches.aio import BatchCalls
from reliq.features.flows.aio import FlowCalls
from reliq.features.prepared.decorator import Check
from reliq.features.schedules.aio import ScheduleCalls
from reliq.features.steps.aio import SignalEvery
from reliq.features.topics.aio import TopicCalls
from reliq.features.tracking.aio import FindCalls
from reliq.model.keys import check_name, instance_of
from reliq.protocol.application import Application
from reliq.protocol.partial_reads import every_queue
from reliq.runtime.blocks import AsyncBlock
from reliq.runtime.bounded import Bounded
from reliq.transport.aiostore import AioStore


class Reliq(AsyncBlock, BatchCalls, Check, FindCalls, FlowCalls, ScheduleCalls, SignalEvery, TopicCalls, Application):
    """An application: queues on a Redis server or cluster, and handlers for them.

    `url`: redis://, rediss:// (TLS), unix://, redis+sentinel://host:port/service/db or
    redis+cluster://host:port,host:port; or a reference to it, env:NAME or file:/path; default RELIQ_URL, else
    redis://localhost:6379/0. `allow_eviction`: work with a Redis that may evict keys, that is lose queues. `max_body`:
    of a body that is sent, in bytes or such as "8MiB", at most 64 MiB; default RELIQ_MAX_BODY, else 1 MiB. The first
    call that needs Redis connects, and raises RedisUnavailable or RedisUnsuitable. As a context it closes at its end.
    Any number of threads may use one reliq.Reliq; a reliq.aio.Reliq is for the tasks of one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        allow_eviction: bool | None = None,
        max_body: Size | None = None,
        send_timeout: Duration = values.SEND_TIMEOUT,
        store: AioStore | None = None,
    ) -> None:
        super().__init__(url, allow_eviction, max_body)
        timeout = values.seconds(send_timeout, "send_timeout", shortest=0.01, longest=3600)
        self.store = store or AioStore(self.url, allow_eviction=self.allow_eviction, timeout=timeout)
        self._pool.sharded = self.store.sharded
        self._queues: Bounded[Queue] = Bounded()
        self._known: list[str] = []  #: queues, as last read

    def queue(self, name: str, *, of_broadcast: bool = False) -> Queue:
        """Return the queue of this name; it exists from its first message on. Raises InvalidName.

        `of_broadcast`: also the queue of a running instance, to look at it; it goes with the instance.
        """
        queue = self._queues.get(name) if isinstance(name, str) else None
        if queue is None:
            queue = Queue(self.store, self._steps_of(name if of_broadcast else check_name(name)))
            if instance_of(name) is None:
                self._queues[name] = queue
        return queue

    async def queues(self, *, of_broadcasts: bool = False) -> list[str]:
        """Return the names of all queues this server has seen; those of running instances only with `of_broadcasts`."""
        self._known = await self.store.run(every_queue(self._known))
        return self._known if of_broadcasts else [name for name in self._known if instance_of(name) is None]

    async def close(self) -> None:
        """Close the idle connections."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
