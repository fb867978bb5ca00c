"""A link on which a large message takes longer than Redis may be silent: that it moves is what counts."""

import asyncio
import socket
import time
from types import SimpleNamespace

import pytest

import reliq
from reliq import aio
from tests.support.proxy import Proxy
from tests.support.sync_adapter import Blocking

MIB = 1024 * 1024
SILENCE = 1.0  # seconds
RATE = 8 * MIB  # bytes a second
BODY = bytes(range(256)) * (16 * MIB // 256)  # two seconds on the way


class Slow(Proxy):
    """Passes on so many bytes a second in each direction, from the moment it is `slow`."""

    def __init__(self, port: int) -> None:
        self.slow = False
        super().__init__(port, self._passed, self._passed)

    def _admits(self, client: socket.socket) -> bool:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        return True

    def _passed(self, data: bytes) -> bytes:
        if self.slow:
            time.sleep(len(data) / RATE)
        return data


@pytest.fixture(params=["sync", "asyncio"])
def slow(request, redis_server, monkeypatch):
    """A proxy, and a queue of either client behind it."""
    monkeypatch.setattr("reliq.transport.target.values", SimpleNamespace(BLOCK=0.0, SOCKET_MARGIN=SILENCE))
    with Slow(redis_server.port) as proxy, asyncio.Runner() as runner:
        sync = request.param == "sync"
        app = (
            reliq.Reliq(proxy.url, max_body=64 * MIB)
            if sync
            else Blocking(aio.Reliq(proxy.url, max_body=64 * MIB), runner)
        )
        yield proxy, app
        app.close()


@pytest.mark.parametrize("bodies", [[BODY], [BODY[:16_000]] * 999], ids=["large", "many"])
def test_messages_that_take_longer_than_the_timeout_arrive_while_bytes_move(slow, bodies):
    proxy, app = slow
    queue = app.queue(f"films-of-{len(bodies)}")
    queue.send(b"first")
    proxy.slow = True
    assert len(queue.send_many(bodies, repeats=0)) == len(bodies)
    arrived = []
    with queue.consumer() as consumer:
        while messages := consumer.claim(1000):  # one call brings a part of many bytes
            arrived += [message.body for message in messages]
            consumer.ack(*messages)
    assert arrived == [b"first", *bodies]
