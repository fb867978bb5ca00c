"""Reliq: the face of the library."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reliq import ops, settings
from reliq.backoff import Backoff
from reliq.handlers import DeadHook, Errors, Handlers
from reliq.keys import check_name, instance_of
from reliq.message import Body, NewMessage
from reliq.producer import Lanes
from reliq.queue import Queue, QueueSteps
from reliq.routing import check_pattern
from reliq.settings import Duration, whole
from reliq.store import Store
from reliq.topics import Topics, TopicSteps
from reliq.url import dereferenced

F = TypeVar("F", bound=Callable[..., Any])


def url_from_environment(url: str | None) -> str:
    """The URL, else that of RELIQ_URL; either may be a reference, `env:NAME` or `file:/path`."""
    return dereferenced(url or os.environ.get("RELIQ_URL") or settings.DEFAULT_URL)


def eviction_allowed(allow: bool | None) -> bool:
    return os.environ.get("RELIQ_ALLOW_EVICTION", "") == "1" if allow is None else allow


class Application:
    """What sync and asyncio applications have in common: the handlers."""

    def __init__(self, url: str | None, allow_eviction: bool | None, max_body: int) -> None:
        self.url = url_from_environment(url)
        self.allow_eviction = eviction_allowed(allow_eviction)
        self.max_body = whole(max_body, "max_body", 1, 512 * 1024 * 1024)
        self.handlers = Handlers()
        self._lanes = Lanes()
        self._steps: dict[str, QueueSteps] = {}
        self._topics = TopicSteps(self._steps_of, self._lanes, self.max_body)

    def _steps_of(self, queue: str) -> QueueSteps:
        steps = self._steps.get(queue) if isinstance(queue, str) else None
        if steps is None:
            steps = self._steps[queue] = QueueSteps(queue, self._lanes, self.max_body)
        return steps

    def handler(
        self,
        queue: str,
        *,
        retry: Backoff | None = None,
        retry_on: type[BaseException] | Errors = BaseException,
        dead_on: type[BaseException] | Errors = (),
        time_limit: Duration | None = None,
        once: bool | str = False,
        once_for: Duration = "1d",
    ) -> Callable[[F], F]:
        """Bind a function (def or async def) to a queue. It returns: acked. It raises: failed, and tried again.

        `retry`: a back-off; by default 10 retries, after 5 s, 15 s, 45 s ... up to an hour, +-20 %.
        `dead_on`: errors that make a dead letter at once. `retry_on`: if given, all others do.
        `time_limit`: how long one run may take; longer counts as a failure.
        `once`: a message that was handled is not handled again, however often it is delivered, for `once_for`; True =
        by its id, or the name of a header whose value tells (messages without it: by id). Costs one more round trip.
        Raises InvalidHandler for a second handler of one queue.
        """
        check_name(queue)  # now: `@app.handler` without its parentheses would otherwise be no handler, silently

        def bind(function: F) -> F:
            self.handlers.add(
                queue, function, retry=retry, retry_on=retry_on, dead_on=dead_on, time_limit=time_limit,
                once=once, once_for=once_for,
            )  # fmt: skip
            return function

        return bind

    def broadcast(self, pattern: str, *, time_limit: Duration | None = None) -> Callable[[F], F]:
        """Have every running worker process call a function (def or async def) for each message of these keys.

        Each process has a queue of its own for it, from its start to its end: it gets what is published meanwhile. One
        that is away misses it, one that is 10,000 messages behind gets no more. There is no retry.
        """
        check_pattern(pattern)

        def bind(function: F) -> F:
            self.handlers.add_broadcast(pattern, function, time_limit)
            return function

        return bind

    def check(self, queue: str) -> Callable[[F], F]:
        """Bind a function (def or async def) that decides about prepared messages whose producer fell silent.

        It is given the message and answers True (commit), False (roll back) or None: it cannot say yet, ask again. It
        runs in the workers of this application. Raises InvalidHandler for a second one of a queue.
        """

        def bind(function: F) -> F:
            self.handlers.add_check(queue, function)
            return function

        return bind

    def on_dead(self, queue: str | None = None) -> Callable[[DeadHook], DeadHook]:
        """Have a function called with each message that a worker of this application puts into the dead letters.

        After the message is safely there; what the function raises is logged and changes nothing.
        """

        def bind(hook: DeadHook) -> DeadHook:
            self.handlers.add_dead_hook(queue, hook)
            return hook

        return bind


class Reliq(Application):
    """An application: queues on a Redis server or cluster, and handlers for them.

    `url`: redis://, rediss:// (TLS), unix://, redis+sentinel://host:port/service/db or
    redis+cluster://host:port,host:port; or a reference to it, env:NAME or file:/path; default RELIQ_URL, else
    redis://localhost:6379/0. `allow_eviction`: work with a Redis that may evict keys, that is lose queues. `max_body`:
    bytes a message body may have. Nothing connects before the first call that needs Redis; that call raises
    RedisUnavailable or RedisUnsuitable.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        allow_eviction: bool | None = None,
        max_body: int = settings.BODY_LARGEST,
        send_timeout: Duration = settings.SEND_TIMEOUT,
        store: Store | None = None,
    ) -> None:
        super().__init__(url, allow_eviction, max_body)
        timeout = settings.seconds(send_timeout, "send_timeout", shortest=0.01, longest=3600)
        self.store = store or Store(self.url, allow_eviction=self.allow_eviction, timeout=timeout)
        self._topics.sharded = self.store.sharded
        self._queues: dict[str, Queue] = {}
        self.topics = Topics(self.store, self._topics)

    def queue(self, name: str, *, of_broadcast: bool = False) -> Queue:
        """The queue of this name; it exists from its first message on. Raises InvalidName.

        `of_broadcast`: also the queue of a running instance, to look at it; it goes with the instance.
        """
        queue = self._queues.get(name) if isinstance(name, str) else None
        if queue is None:
            queue = Queue(self.store, self._steps_of(name if of_broadcast else check_name(name)))
            if not of_broadcast:
                self._queues[name] = queue
        return queue

    def publish(
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
        """Enqueue a copy into every queue that subscribes to the routing key, in one atomic step; the id by queue.

        Where nobody does: Unroutable if `mandatory`, else it goes to the alternate queue (`topics.set_alternate`), or
        is counted and gone. The other options are those of NewMessage. All queues get it or none: QueueFull names the
        one that is full. Raises as `Queue.send`, and InvalidName for a routing key with blanks or wildcards.
        """
        options = {"id": id, "delay": delay, "headers": headers, "ttl": ttl, "key": key, "priority": priority}
        message = self._topics.prepared(body, options)
        return self.store.run(self._topics.publish(routing_key, message, mandatory, durability, retries))

    def subscribe(self, queue: str, *patterns: str) -> bool:
        """Have the queue take what is published under keys that match: `*` is one word, `#` any number of words.

        Subscriptions live in Redis until `unsubscribe`; producers follow within a second. The queue is the consumer
        group: its workers compete, and its retries and dead letters are its own. Whether something is new.
        """
        return self.store.run(self._topics.bind(queue, *patterns))

    def unsubscribe(self, queue: str, *patterns: str) -> bool:
        """End it; what the queue has got, it keeps. Whether there was something to end."""
        return self.store.run(self._topics.unbind(queue, *patterns))

    def queues(self, *, of_broadcasts: bool = False) -> list[str]:
        """The names of all queues this server has seen; those of running instances only if asked for."""
        names: list[str] = self.store.call(ops.queue_names())
        return names if of_broadcasts else [name for name in names if instance_of(name) is None]

    def close(self) -> None:
        """Close the idle connections."""
        self.store.close()
