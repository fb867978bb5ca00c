"""A channel of kombu on reliq: declares, publishes, consumes, acks."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.entity import TRANSIENT_DELIVERY_MODE
from kombu.exceptions import ChannelError, OperationalError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from reliq import Message
from reliq.contrib.kombu.arguments import QueueArguments
from reliq.contrib.kombu.consuming import Credit, Reader, Subscription, hand_back
from reliq.contrib.kombu.messages import incoming, is_task, outgoing, requeued
from reliq.errors import InvalidSetting, OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.ops import Destination, Move
from reliq.ops.schema import Counter
from reliq.protocol.outcomes import buried, failure_now, retried
from reliq.worker.exchange import Exchange

_STANDARD = {f"amq.{kind}": kind for kind in ("direct", "topic", "fanout")}  #: exchanges that every broker has
REJECTED = "rejected by its consumer, not to be requeued"


@dataclass(slots=True)
class Unacked:
    """A message that was received and not settled."""

    exchange: Exchange
    message: Message
    received: Any  #: kombu's message


class QoS:
    """The prefetch count of a channel, and the messages that count."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count
        self.unacked: dict[str, Unacked] = {}

    def can_consume(self) -> bool:
        """Whether the prefetch count allows another message."""
        return not self.prefetch_count or len(self.unacked) < self.prefetch_count

    def take(self, tag: str, multiple: bool) -> Iterator[Unacked]:
        """Remove a message, with `multiple` also those received before it."""
        if multiple and tag in self.unacked:
            tags = list(self.unacked)
            tags = tags[: tags.index(tag) + 1]
        else:
            tags = [tag]
        for one in tags:
            if (found := self.unacked.pop(one, None)) is not None:
                yield found


class Channel(virtual.Channel):
    """A channel. Exchanges are known to the process that declares them; queues and bindings are in Redis."""

    QoS = QoS
    supports_fanout = True
    default_priority = None

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self.closed = False
        self._broker = connection.broker
        self._options = connection.options
        self._credit = Credit(self.qos)
        self._subscriptions: dict[str, tuple[Subscription, Reader]] = {}

    # --- queues and exchanges ---

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Make a queue known. One that is exclusive or to be deleted goes a few seconds after its last consumer."""
        queue = queue or f"amq.gen-{uuid()}"
        if not passive:
            passing = auto_delete or exclusive
            self._broker.declare(queue, passing, QueueArguments.of(queue, arguments or {}, passing=passing))
        elif not self._broker.exists(queue):
            raise ChannelError(f"NOT_FOUND - no queue {queue!r}", (50, 10), "Channel.queue_declare", "404")
        return queue_declare_ok_t(queue, self._broker.ready(queue), 0)

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **options)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> None:
        if (if_empty and self._broker.ready(queue)) or (if_unused and self._broker.consumers(queue)):
            return
        self.state.queue_bindings_delete(queue)
        self._broker.delete(queue)

    def queue_purge(self, queue: str, **_: Any) -> int:
        return int(self._broker.purge(queue))

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        exchange = exchange or "amq.direct"
        self._broker.bind(queue, exchange, self._pattern(exchange, routing_key))
        self.state.binding_declare(queue, exchange, routing_key, arguments)

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **_: Any
    ) -> None:
        exchange = exchange or "amq.direct"
        self._broker.unbind(queue, self._pattern(exchange, routing_key))
        self.state.binding_delete(queue, exchange, routing_key)

    def _pattern(self, exchange: str, key: str) -> str:
        kind = self._type_of(exchange, (50, 20), "Queue.bind")
        return str(self._broker.names.pattern(exchange, kind, key or ""))

    def _type_of(self, exchange: str, method: tuple[int, int], method_name: str) -> str:
        """Return the type of an exchange; raises ChannelError if no connection of this process has declared it."""
        kind = self._broker.exchanges.get(exchange) or _STANDARD.get(exchange)
        if kind is None:
            raise ChannelError(
                f"NOT_FOUND - exchange {exchange!r} is unknown to this process, and with it its type: "
                "declare it first, with no_declare=False",
                method,
                method_name,
                "404",
            )
        return kind

    def exchange_declare(self, exchange: str | None = None, type: str | None = None, **options: Any) -> None:
        """Make an exchange known to this process; raises InvalidSetting for one that is not direct, topic or fanout."""
        if type and type not in self.connection.implements.exchange_type:
            raise InvalidSetting(f"exchange {exchange!r} has the type {type!r}: reliq knows direct, topic and fanout")
        if exchange and options.get("passive"):
            self._type_of(exchange, (40, 10), "Exchange.declare")
            return
        super().exchange_declare(exchange, type, **options)
        if exchange:
            self._broker.exchanges[exchange] = type or "direct"

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete an exchange with its bindings, those of other processes too; with `if_unused` only if it has none."""
        if not self._broker.delete_exchange(exchange, if_unused):
            return
        for key in [one for one in self.state.bindings if one.exchange == exchange]:
            self.state.binding_delete(*key)
        self.state.exchanges.pop(exchange, None)

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        return ((one.queue, one.exchange, one.routing_key) for one in self.state.bindings)

    def _size(self, queue: str) -> int:
        return int(self._broker.ready(queue))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return bool(self._broker.exists(queue))

    # --- publishing ---

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        properties = properties or {}
        properties.setdefault("delivery_info", {})
        properties.setdefault("priority", priority)
        return {
            "body": body,
            "content-encoding": content_encoding,
            "content-type": content_type,
            "headers": headers or {},
            "properties": properties,
        }

    def basic_publish(self, message: dict[str, Any], exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Publish; raises reliq's errors, of which those of a lost connection are kombu's `connection_errors`.

        A passing note to an exchange, such as a heartbeat of a Celery worker, is sent now or not at all: kombu would
        repeat it until Redis is back, and the worker's event loop would stand still meanwhile. No task is such a note.
        """
        properties = message["properties"]
        properties["delivery_info"] |= {"exchange": exchange, "routing_key": routing_key}
        three = self._options.prioritised or self._broker.is_prioritised(exchange, routing_key)
        new = outgoing(message, self._options, three)
        passing = properties.get("delivery_mode") == TRANSIENT_DELIVERY_MODE and not is_task(message["headers"])
        if not exchange:
            if not passing or self._broker.exists(routing_key):  # else it is the reply to a client that is gone
                self._broker.send(routing_key, new)
            return
        key = self._broker.names.routing_key(exchange, routing_key)
        if not passing:
            self._broker.publish(key, new)
            return
        try:
            self._broker.publish(key, new, timeout=0)
        except (RedisUnavailable, OutcomeUnknown) as error:
            raise OperationalError(str(error)) from None

    # --- consuming ---

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **_: Any
    ) -> None:
        """Receive the messages of a queue by the connection's `drain_events` or event loop."""
        name = self._source(queue, (60, 20), "Basic.consume")
        taken = [one.place for one, _ in self._subscriptions.values() if one.queue == name]
        place = next(one for one in itertools.count() if one not in taken)
        exchange = self.connection.hold(name, self, place)
        subscription = Subscription(name, exchange, no_ack, functools.partial(self._deliver, callback), place=place)
        self._broker.receives(name)
        renew = functools.partial(self._broker.keep, name)
        reader = Reader(subscription, self.connection.inbox, self._credit, self.connection.settler, renew)
        self._consumers.add(consumer_tag)
        self._tag_to_queue[consumer_tag] = queue
        self._subscriptions[consumer_tag] = subscription, reader
        reader.start()

    def _source(self, queue: str, method: tuple[int, int], method_name: str) -> str:
        """Return reliq's name of a queue to receive from; raises ChannelError for one with several partitions."""
        name: str = self._broker.name_of(queue)
        if (count := len(self._broker.homes(name))) > 1:
            raise ChannelError(
                f"PRECONDITION_FAILED - queue {queue!r} has {count} partitions, and kombu takes from one only: "
                f"use a worker of reliq, or `reliq queue config {name} partitions=1`",
                method,
                method_name,
                "406",
            )
        return name

    def _deliver(self, callback: Callable[[Any], Any], subscription: Subscription, message: Message) -> None:
        if message.lost:  # its lease is over, and another worker has it
            self._credit.give_back(1)
            return
        received = self.Message(incoming(message), channel=self)
        if subscription.no_ack:
            subscription.exchange.ack(message.element)
            self.connection.settler.wake()
        else:
            self.qos.unacked[received.delivery_tag] = Unacked(subscription.exchange, message, received)
        self._credit.give_back(1)
        callback(received)

    def basic_cancel(self, consumer_tag: str) -> None:
        """Receive no more of a consumer's messages; those received before stay to be acked."""
        if consumer_tag not in self._subscriptions:
            return
        self._consumers.discard(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag, "")
        subscription, reader = self._subscriptions.pop(consumer_tag)
        unreceived = self.connection.inbox.end(subscription)
        self._credit.give_back(len(unreceived))
        hand_back(subscription.exchange, unreceived)
        reader.stop()
        if any(one.exchange is subscription.exchange for one in self.qos.unacked.values()):
            self.connection.settler.wake()
        else:
            self.connection.end_holding(self, subscription.queue, subscription.place)
        if self._broker.received_last(subscription.queue):
            self.state.queue_bindings_delete(queue)
            self._broker.forget(queue, subscription.queue)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return the next message, or None; raises ChannelError for a queue with several partitions."""
        exchange = self.connection.hold(self._source(queue, (60, 70), "Basic.get"), self, None)
        found = exchange.claim(1)
        if not found:
            return None
        received = self.Message(incoming(found[0]), channel=self)
        if no_ack:
            exchange.ack(found[0].element)
            exchange.relieve()
        else:
            self.qos.unacked[received.delivery_tag] = Unacked(exchange, found[0], received)
        return received

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        self.qos.prefetch_count = prefetch_count or 0
        self._credit.changed()

    # --- settling ---

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        for one in self.qos.take(delivery_tag, multiple):
            if not one.message.lost:
                one.exchange.ack(one.message.element)
        self._settled()

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Put a message back, or make it a dead letter.

        A message whose consumer has noted a `failure` (error class and text) goes back as a failed one, and after as
        many failures as the queue's `max_deliveries` it is a dead letter, too.
        """
        for one in self.qos.take(delivery_tag, multiple=False):
            if not one.message.lost:
                one.exchange.move(self._rejected(one, requeue))
                with contextlib.suppress(ReliqError), self._broker.store.borrow() as connection:
                    one.exchange.relieve(connection)  # what the caller sends next comes after it
        self._settled()

    def _rejected(self, one: Unacked, requeue: bool) -> Move:
        message, consumer = one.message, one.exchange.steps.consumer
        noted = getattr(one.received, "failure", None)
        failure = failure_now(consumer, *(noted or ("Reject", REJECTED)))
        if not requeue:
            return buried(message, failure, "rejected")
        if noted is None:
            return Move(message.element, Destination.HEAD, Counter.RELEASED, message.id, requeued(message))
        if message.failures + 1 >= self._broker.most_deliveries(message.queue):
            return buried(message, failure, "max_deliveries")
        return retried(message, failure, 0.0)

    def basic_recover(self, requeue: bool = False) -> None:
        """Put back all messages that were received and not settled."""
        if not requeue:
            raise NotImplementedError("reliq puts messages back into the queue: call recover(requeue=True)")
        self._put_back()
        self._settled()

    def _put_back(self) -> None:
        for one in reversed(list(self.qos.unacked.values())):
            hand_back(one.exchange, [one.message], started=True)
        self.qos.unacked.clear()

    def _settled(self) -> None:
        self._credit.changed()
        self.connection.settler.wake()

    def close(self) -> None:
        """Stop consuming; what was received and not settled goes back."""
        if self.closed:
            return
        self.closed = True
        if self.connection.is_parents:
            return
        connection = self.connection
        for tag in list(self._subscriptions):
            self.basic_cancel(tag)
        self._put_back()
        connection.end_holding(self)
        connection.close_channel(self)
        self.exchange_types = None
