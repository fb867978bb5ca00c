"""A process that uses kombu for months keeps nothing of the queues, consumers and guards that are over."""

import json
from typing import Any

import kombu
import pytest

import reliq.contrib.kombu  # noqa: F401  its transports have names
from reliq import forks
from reliq.contrib import guard
from tests.support.growth import kept_by


def consume(connection: kombu.Connection, queue: kombu.Queue) -> None:
    with connection.channel() as channel, kombu.Consumer(channel, [queue], callbacks=[lambda _, one: one.ack()]):
        pass


def reply_queue(name: str) -> kombu.Queue:
    return kombu.Queue(name, kombu.Exchange("replies"), name, exclusive=True, auto_delete=True)


def test_reply_queues_are_forgotten_with_their_last_consumer(connection: kombu.Connection) -> None:
    broker, state = connection.transport.broker, connection.transport.state

    def noted(number: int) -> int:
        consume(connection, reply_queue(f"reply-{number}"))
        return len(broker._names) + len(broker._passing) + len(broker._receivers) + kept_by(state)

    before = noted(0)
    assert [noted(number) for number in range(1, 4)] == [before] * 3


def test_a_queue_with_another_consumer_is_kept(connection: kombu.Connection) -> None:
    queue = reply_queue("reply")
    with connection.channel() as channel, kombu.Consumer(channel, [queue], callbacks=[print]):
        consume(connection, queue)
        assert connection.transport.broker._passing
        assert connection.transport.state.bindings
    assert not connection.transport.broker._passing


def test_deleted_queues_with_priorities_are_forgotten(connection: kombu.Connection) -> None:
    for number in range(3):
        queue = kombu.Queue(f"q{number}", max_priority=9, channel=connection.channel())
        queue.declare()
        queue.delete()
    assert not connection.transport.broker._prioritised


class Told:
    """A guard that has no process."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stdin = self
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)

    def close(self) -> None: ...

    def wait(self, seconds: float) -> None: ...


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    made: list[Told] = []

    def popen(*_: Any, **__: Any) -> Told:
        made.append(Told())
        return made[-1]

    monkeypatch.setattr("reliq.contrib.guard.subprocess.Popen", popen)
    return made


def test_the_guard_returns_what_living_consumers_hold(
    broker: str, told: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = len(forks._callbacks)
    with kombu.Connection(broker, transport_options={"guard": True, "monitor": False}) as connection:
        stays = kombu.Consumer(connection.channel(), [kombu.Queue("q")], callbacks=[print])
        stays.consume()
        for _ in range(3):
            consume(connection, kombu.Queue("q"))
        returned: list[str] = []
        monkeypatch.setattr(guard, "_take_back", lambda _, owner: returned.append(owner))
        guard.main(told[0].lines)
        assert returned == [connection.transport._holders[0].owner]
        stays.cancel()
    assert len(told) == 1
    assert len(forks._callbacks) == callbacks
    assert json.loads(told[0].lines[0])["url"]


def test_a_line_that_is_not_whole_is_not_read() -> None:
    guard.main([b'{"url": "redis://nowhere", "allow_eviction": false}\n', b'"owner'])
