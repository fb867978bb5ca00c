"""The broker of a process: one application of reliq for each URL, shared by the connections of kombu."""

import threading
import time
from collections import Counter, defaultdict
from typing import Any

from reliq import NewMessage, forks, ops
from reliq.contract import values
from reliq.contrib.guard import Guard
from reliq.contrib.kombu.arguments import QueueArguments
from reliq.contrib.kombu.names import Names
from reliq.contrib.kombu.options import Options
from reliq.errors import QueueFull
from reliq.features.topics import ops as topics
from reliq.features.topics.steps import TopicSteps
from reliq.model.keys import QueueKeys, instance_of
from reliq.protocol.announcing import announce_if_possible
from reliq.protocol.application import body_limit, eviction_allowed
from reliq.protocol.producer import ProducerPool
from reliq.protocol.queue import QueueSteps
from reliq.runtime.bounded import Bounded
from reliq.runtime.url import read_url
from reliq.transport.store import Store

_MOST_BEHIND = 100_000  #: messages in a queue that goes with its consumer; it receives no further ones
_DECLARED = float("inf")  #: for so long a name is known that this process has declared
_UNKNOWN_FOR = 1.0  #: seconds for which a queue that is not passing is taken for a lasting one


class Broker:
    """Queues and bindings under the names that kombu gives them, and a monitor while messages are consumed."""

    def __init__(self, url: str, options: Options) -> None:
        self._allow_eviction = eviction_allowed(options.allow_eviction)
        self.store = Store(url, allow_eviction=self._allow_eviction)
        self._url = url
        self._options = options
        self.names = Names(options.global_keyprefix)
        self._pool = ProducerPool()
        self._pool.sharded = self.store.sharded
        self._queues: Bounded[QueueSteps] = Bounded()
        self._max_body = self._pool.max_body = body_limit(options.max_body)
        self._topics = TopicSteps(self._queue, self._pool, self._max_body)
        self._names: Bounded[tuple[str, float]] = Bounded()  #: kombu's name -> reliq's, and until when it is known
        self.exchanges = _exchanges_at(url, options.global_keyprefix)
        self._passing: dict[str, set[str]] = defaultdict(set)  #: queue -> its bindings, of queues that go
        self._receivers: Counter[str] = Counter()  #: of passing queues, in this process
        self._prioritised: set[tuple[str, str]] = set()  #: exchanges, and queues of the exchange without a name
        self._lock = threading.Lock()
        self._users = 0
        self._consumers = 0
        self._monitor: Any = None
        self._guard: Guard | None = None

    def ping(self) -> None:
        """Raise RedisUnavailable or RedisUnsuitable if messages cannot be sent now."""
        self.store.call(ops.ping(), timeout=0)

    # --- queues ---

    def declare(self, name: str, passing: bool, arguments: QueueArguments) -> None:
        """Make a queue known. `passing`: it goes with its last consumer."""
        queue = self.names.passing_queue(name) if passing else self.names.lasting_queue(name)
        if arguments.prioritised:
            self._prioritised.add(("", name))
        self._names[name] = queue, _DECLARED
        if passing:
            self._passing[queue] |= set()
            self.keep(queue, topics.await_consumer(QueueKeys(queue), arguments.awaited))
        else:
            self.store.run(announce_if_possible(queue))
            if arguments.max_length is not None:
                self._limit(self._queue(queue), arguments.max_length)

    def _limit(self, queue: QueueSteps, max_length: int) -> None:
        """Limit a queue, unless an operator has done so."""
        if self.store.run(queue.config()).max_length is None:
            self.store.run(queue.configure({"max_length": max_length}))

    def keep(self, queue: str, *first: ops.Op[int]) -> None:
        """Register a passing queue and its bindings, also when a monitor has dropped them; nothing for others."""
        if queue not in self._passing:
            return
        bindings = [f"{queue} {one}" for one in self._passing[queue]]
        bound = [topics.bind("bind", bindings)] if bindings else []
        kept = topics.keep_for_broadcasts(QueueKeys(queue), _MOST_BEHIND)
        self.store.call([*first, kept, ops.announce(queue), *bound])

    def name_of(self, name: str) -> str:
        """Return reliq's name of a queue that may have been declared in another process."""
        known, until = self._names.get(name, ("", 0.0))
        if time.monotonic() < until:
            return known
        passing = self.names.passing_queue(name)
        found = self.store.call(topics.is_for_broadcasts(QueueKeys(passing)))
        queue = passing if found else self.names.lasting_queue(name)
        self._names[name] = queue, time.monotonic() + _UNKNOWN_FOR
        return queue

    def _queue(self, queue: str) -> QueueSteps:
        steps = self._queues.get(queue)
        if steps is None:
            steps = self._queues[queue] = QueueSteps(queue, self._pool, self._max_body)
        return steps

    def is_prioritised(self, exchange: str, routing_key: str) -> bool:
        """Whether this process declared the queue, or one bound to the exchange, with a `max_priority`."""
        return (exchange, "") in self._prioritised if exchange else ("", routing_key) in self._prioritised

    def exists(self, name: str) -> bool:
        """Whether a queue is there, or this process has declared it to last: Redis may have lost it since."""
        queue, until = self._names.get(name, ("", 0.0))
        if until == _DECLARED and queue not in self._passing:
            return True
        return bool(self.store.call(ops.is_queue(self.name_of(name))))

    def ready(self, name: str) -> int:
        """Return how many messages wait in a queue."""
        return self.store.run(self._queue(self.name_of(name)).stats()).ready

    def consumers(self, name: str) -> int:
        return len(self.store.call(ops.members(QueueKeys(self.name_of(name)).consumers)))

    def most_deliveries(self, queue: str) -> int:
        """Return how many deliveries a message of a queue may have, under reliq's name, before it is a dead letter."""
        return self.store.call(ops.max_deliveries(QueueKeys(queue))) or values.MAX_DELIVERIES

    def purge(self, name: str) -> int:
        return self.store.run(self._queue(self.name_of(name)).purge())

    def homes(self, queue: str) -> list[str]:
        """Return the homes of a queue that may have messages, the queue itself first."""
        found: list[str] = self.store.call(ops.layout(QueueKeys(queue))).every(queue)
        return found

    def delete(self, name: str) -> None:
        """Delete a queue with its messages and its bindings."""
        queue = self.name_of(name)
        bindings = [one for one, bound in self.store.call(topics.bound()).items() if bound == queue]
        if bindings:
            self.store.call(topics.bind("unbind", bindings))
        for one in reversed(self.homes(queue)):
            self.store.call(ops.drop_queue(QueueKeys(one)))
        self.forget(name, queue)

    def forget(self, name: str, queue: str) -> None:
        """Forget what was declared of a queue, which goes or has gone."""
        self._names.pop(name, None)
        self._passing.pop(queue, None)
        self._prioritised.discard(("", name))

    def receives(self, queue: str) -> None:
        """Note a receiver of a queue."""
        if instance_of(queue) is not None:
            self.store.call(topics.consumer_came(QueueKeys(queue)))
        if queue in self._passing:
            with self._lock:
                self._receivers[queue] += 1

    def received_last(self, queue: str) -> bool:
        """Note the end of a receiver; return whether a passing queue goes with it, as far as this process knows."""
        with self._lock:
            if queue not in self._receivers:
                return False
            self._receivers[queue] -= 1
            if self._receivers[queue]:
                return False
            del self._receivers[queue]
            return True

    # --- bindings and messages ---

    def bind(self, name: str, exchange: str, pattern: str) -> None:
        queue = self.name_of(name)
        if ("", name) in self._prioritised:
            self._prioritised.add((exchange, ""))
        if queue in self._passing:
            self._passing[queue].add(pattern)
        self.store.call(topics.bind("bind", [f"{queue} {pattern}"]))

    def unbind(self, name: str, pattern: str) -> None:
        queue = self.name_of(name)
        self._passing.get(queue, set()).discard(pattern)
        self.store.call(topics.bind("unbind", [f"{queue} {pattern}"]))

    def delete_exchange(self, exchange: str, if_unused: bool) -> bool:
        """Delete the bindings to an exchange, and forget its type; return False if it has any and must have none."""
        key = self.names.routing_key(exchange, "")
        bindings = [one for one in self.store.call(topics.bound()) if f"{one.split(' ')[1]}.".startswith(f"{key}.")]
        if bindings and if_unused:
            return False
        for one in bindings:
            queue, pattern = one.split(" ")
            self._passing.get(queue, set()).discard(pattern)
        if bindings:
            self.store.call(topics.bind("unbind", bindings))
        self.exchanges.pop(exchange, None)
        return True

    def send(self, name: str, message: NewMessage) -> None:
        """Send to one queue. A full one that goes with its consumer receives nothing, as it does of `publish`."""
        queue = self.name_of(name)
        steps = self._queue(queue)
        try:
            self.store.run(steps.send_many([steps.prepared(message, {})]))
        except QueueFull:
            if instance_of(queue) is None:
                raise

    def publish(self, routing_key: str, message: NewMessage, timeout: float | None = None) -> None:
        """Send to every queue whose bindings match now, in one atomic step; wait for Redis for `timeout` seconds."""
        steps = self._topics.publish_now(routing_key, self._topics.prepared(message, {}))
        self.store.run(steps, timeout=timeout)

    # --- the life of its parts ---

    def opened(self) -> None:
        with self._lock:
            self._users += 1

    def closed(self) -> None:
        """Close the idle connections with the last connection of kombu."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
        self.store.close()

    def consuming(self, owner: str) -> None:
        """Note a consumer: the first one starts the monitor and the guard that the options ask for."""
        with self._lock:
            self._consumers += 1
            if self._options.guard:
                self._guard = self._guard or Guard(self._url, allow_eviction=self._allow_eviction)
                self._guard.watch(owner)
            if self._consumers == 1 and self._options.monitor:
                from reliq_monitor import MonitorThread

                self._monitor = MonitorThread(
                    Store(self._url, allow_eviction=self._allow_eviction), reconnect_grace=self._options.grace
                )
                self._monitor.start()

    def consumed(self, owner: str | None = None) -> None:
        """Note the end of a consumer; `owner`: it was the last one of this owner, which holds nothing any more."""
        with self._lock:
            self._consumers -= 1
            if owner is not None and self._guard is not None:
                self._guard.leave(owner)
            if self._consumers:
                return
            monitor, guard, self._monitor, self._guard = self._monitor, self._guard, None, None
        if monitor is not None:
            monitor.stop()
        if guard is not None:
            guard.end()


_brokers: dict[tuple[str, Options], Broker] = {}
_exchanges: dict[tuple[str, int, str], Bounded[str]] = {}  #: by server, database and key prefix
_mark = forks.mark()
_lock = threading.Lock()


def broker_of(url: str, options: Options) -> Broker:
    """Return this process's broker for a URL; a forked child makes its own."""
    global _mark
    with _lock:
        if _mark != forks.mark():
            _brokers.clear()
            _mark = forks.mark()
        return _brokers.setdefault((url, options), Broker(url, options))


def _exchanges_at(url: str, prefix: str) -> Bounded[str]:
    """Return the types of the exchanges that this process has declared, also with other options, by their names."""
    server = read_url(url)
    return _exchanges.setdefault((server.tried, server.database, prefix), Bounded())
