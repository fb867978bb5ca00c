"""What the other moves of a large message cost: bytes appended to the file and received, as multiples of its body."""

import time
from collections.abc import Callable

import redis

import reliq
from bench.suite.harness import Check, Row, Setting
from bench.suite.weighing import KIB, Weight, named, persistent_redis, weighed
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.transport.store import Store
from reliq_monitor import Monitor
from reliq_monitor.promote import Promotion
from reliq_monitor.returns import Returns

_SIZE = 64 * KIB
_BOUND = 1.1  #: bodies that a move may append where it changes the message
_DUE = 0.05  #: seconds until a retry is due
_PATIENCE = 30.0  #: seconds until the monitor has moved all
_CHECKED = ("retry", "redrive")


class Moves:
    """One batch of messages, moved in every way."""

    def __init__(self, url: str, client: redis.Redis, messages: int) -> None:
        self._app, self._client, self._messages = reliq.Reliq(url), client, messages
        self._queue, self._keys = self._app.queue("bench"), QueueKeys("bench")
        self._monitor = Monitor(Store(url))
        self.found: dict[str, Weight] = {}

    def run(self) -> None:
        self._queue.send_many([b"x" * _SIZE] * self._messages)
        with self._queue.consumer() as consumer:
            held = self._claimed(consumer)
            self._weigh("release", lambda _: consumer.release(*held))
            held = self._claimed(consumer)
            self._weigh("retry", lambda _: _each(held, lambda one: consumer.retry(one, delay=_DUE)))
            time.sleep(2 * _DUE)
            self._weigh("promote", lambda count: self._until(count, lambda: self._monitor.perform(Promotion)[0]))
            held = self._claimed(consumer)
            self._weigh("dead", lambda _: _each(held, lambda one: consumer.dead(one, "bench")))
        self._weigh("redrive", lambda _: self._queue.dead.redrive())
        vanished = self._queue.consumer()
        self._claimed(vanished)
        self._app.store.call(ops.end(self._keys, vanished.id))
        self._weigh("reclaim", lambda count: self._until(count, self._returned))
        self._app.close()

    def _returned(self) -> int:
        self._monitor.look()
        return self._monitor.perform(Returns).reclaimed

    def _claimed(self, consumer: reliq.Consumer) -> list[reliq.Message]:
        held: list[reliq.Message] = []
        while len(held) < self._messages:
            held += consumer.claim(limit=self._messages - len(held), wait=1)
        return held

    @staticmethod
    def _until(messages: int, some: Callable[[], int]) -> None:
        until = time.monotonic() + _PATIENCE
        while messages > 0 and time.monotonic() < until:
            messages -= some()

    def _weigh(self, name: str, work: Callable[[int], object]) -> None:
        self.found[name] = weighed(self._client, work, self._messages)


def _each(messages: list[reliq.Message], settle: Callable[[reliq.Message], None]) -> None:
    for message in messages:
        settle(message)


def moves(setting: Setting) -> Row:
    """Return the row of retry, redrive and the others."""
    messages = max(4, setting.volume(50))
    with persistent_redis() as (server, client):
        Moves(server.url, client, 4).run()  # loads the scripts
        client.flushall()
        all_of_them = Moves(server.url, client, messages)
        all_of_them.run()
    appended = {name: weight.appended / _SIZE for name, weight in all_of_them.found.items()}
    row = Row(f"weight: bytes appended by other moves of {named(_SIZE)}, as multiples of the body")
    row.checks = [Check(name, [appended[name]], _BOUND, at_least=False) for name in _CHECKED]
    row.notes = [
        f"{name}: {appended[name]:.3f} appended, {weight.received / _SIZE:.3f} to Redis, {weight.cpu_us:.0f} us of CPU"
        for name, weight in all_of_them.found.items()
    ]
    row.figures = appended
    return row
