"""The application: queues, topics and handlers of one Redis."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reliq import ops
from reliq.client.queue import Queue
from reliq.client.topics import Topics
from reliq.model import settings
from reliq.model.keys import check_name, instance_of
from reliq.model.outgoing import Body, NewMessage
from reliq.model.settings import Duration
from reliq.protocol.application import Application
from reliq.transport.store import Store

F = TypeVar("F", bound=Callable[..., Any])


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
        max_body: int = settings.MAX_BODY_BYTES,
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
