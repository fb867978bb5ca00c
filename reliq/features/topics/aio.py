"""Topics: which queues get what is published, and functions of every running process."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, Unpack

from reliq.contract.keywords import PublishOptions
from reliq.contract.values import Duration
from reliq.features.topics.model import add_broadcast
from reliq.features.topics.routing import check_pattern
from reliq.features.topics.steps import Binding, TopicStats, TopicSteps
from reliq.model.outgoing import Body, NewMessage
from reliq.model.signatures import check_called
from reliq.protocol.application import Application
from reliq.runtime.advice import renamed
from reliq.transport.aiostore import AioStore

F = TypeVar("F", bound=Callable[..., Any])


class Topics:
    """The bindings of all queues, `app.topics`."""

    def __init__(self, store: AioStore, steps: TopicSteps) -> None:
        self._store = store
        self._steps = steps

    async def match(self, routing_key: str) -> list[str]:
        """Return the queues that would get a message with this key, else the alternate one; nothing is sent."""
        return await self._store.run(self._steps.match(routing_key))

    async def list(self) -> list[Binding]:
        """Return every binding, sorted by queue."""
        return await self._store.run(self._steps.list())

    async def set_alternate(self, queue: str | None) -> None:
        """Set the queue for messages that no binding matches; None: they are counted as unroutable, and dropped."""
        await self._store.run(self._steps.set_alternate(queue))

    async def stats(self) -> TopicStats:
        """Return how many bindings there are, and how many messages matched none."""
        return await self._store.run(self._steps.stats())


class TopicCalls(Application):
    """What an application has of topics."""

    store: AioStore

    @cached_property
    def _topics(self) -> TopicSteps:
        return TopicSteps(self._steps_of, self._pool, self.max_body)

    @cached_property
    def topics(self) -> Topics:
        """The bindings of all queues."""
        return Topics(self.store, self._topics)

    async def publish(
        self,
        routing_key: str,
        body: Body | NewMessage,
        *,
        mandatory: bool = False,
        durability: str | None = None,
        repeats: int | None = None,
        retries: int | None = None,
        **options: Unpack[PublishOptions],
    ) -> dict[str, str]:
        """Enqueue a copy into every queue that subscribes to the routing key, in one atomic step; return id by queue.

        Without a subscriber: Unroutable if `mandatory`, else it goes to the alternate queue (`topics.set_alternate`),
        or is counted and dropped. Other options are those of PublishOptions and of `Queue.send`. If one queue is full,
        none gets it: QueueFull names it. Raises as `Queue.send`, and InvalidName for an unfit routing key. On a Redis
        Cluster there is a step for each hash slot: `QueueFull.reached` has the queues that got it, and OutcomeUnknown
        says that some of them may have it.
        """
        message = self._topics.prepared(body, options)
        most = renamed(repeats, retries)
        return await self.store.run(self._topics.publish(routing_key, message, mandatory, durability, most))

    async def subscribe(self, queue: str, *patterns: str) -> bool:
        """Let the queue receive what is published under matching keys: `*` is one word, `#` any number of words.

        Subscriptions stay until `unsubscribe`; producers follow within a second. The workers of the queue compete; its
        retries and dead letters are its own. Return whether a pattern is new.
        """
        return await self.store.run(self._topics.bind(queue, *patterns))

    async def unsubscribe(self, queue: str, *patterns: str) -> bool:
        """End subscriptions, and return whether there was one; the queue keeps the messages it has."""
        return await self.store.run(self._topics.unbind(queue, *patterns))

    def broadcast(self, pattern: str, *, time_limit: Duration | None = None) -> Callable[[F], F]:
        """Make every running worker process call a function for each message with a matching key.

        Each process receives what is published while it runs, in its own queue. One that is 10,000 messages behind
        receives no more. There is no retry.
        """
        check_called(pattern, "broadcast", '"order.#"')
        check_pattern(pattern)

        def bind(function: F) -> F:
            add_broadcast(self.handlers, pattern, function, time_limit)
            return function

        return bind
