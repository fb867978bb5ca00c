"""A producer and a consumer of kombu, for tests."""

from typing import Any

import kombu


class Received(list[Any]):
    """A consumer that keeps what it receives and acks it, unless told not to."""

    def __init__(self, connection: kombu.Connection, *queues: str, ack: bool = True, **options: Any) -> None:
        super().__init__()
        self.messages: list[Any] = []
        self._ack = ack
        self._connection = connection
        self.consumer = kombu.Consumer(
            connection, [kombu.Queue(name) for name in queues], callbacks=[self._take], **options
        )

    def _take(self, body: Any, message: Any) -> None:
        self.append(body)
        self.messages.append(message)
        if self._ack:
            message.ack()

    def drain(self, count: int, timeout: float = 10) -> "Received":
        with self.consumer:
            self.drain_open(count, timeout)
        return self

    def drain_open(self, count: int, timeout: float = 10) -> None:
        while len(self) < count:
            self._connection.drain_events(timeout=timeout)


def publish(connection: kombu.Connection, queue: str, *bodies: Any, **options: Any) -> None:
    producer = kombu.Producer(connection)
    for body in bodies:
        producer.publish(body, routing_key=queue, declare=[kombu.Queue(queue)], **options)
