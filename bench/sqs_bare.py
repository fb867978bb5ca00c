"""The least that an endpoint in Python can do: it knows SendMessage, checks nothing, and writes each body to a list.

Run with its port and that of Redis, by bench/sqs_costs.py.
"""

import asyncio
import hashlib
import sys
from collections import deque
from collections.abc import Callable

import httptools
import msgspec
import uvloop


class Redis(asyncio.Protocol):
    """A connection that pushes bodies; its answers come in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def push(self, body: bytes, then: Callable[[], None]) -> None:
        self._waiting.append(then)
        self._transport.write(b"*3\r\n$5\r\nLPUSH\r\n$1\r\nq\r\n$%d\r\n%b\r\n" % (len(body), body))

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n")):
            self._waiting.popleft()()


class Http(asyncio.Protocol):
    """A connection of a client, which sends one request after another."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        if not self._body:
            return self._answer({})
        body = msgspec.json.decode(self._body)["MessageBody"].encode()
        told = {"MD5OfMessageBody": hashlib.md5(body, usedforsecurity=False).hexdigest(), "MessageId": "0"}
        return self._redis.push(body, lambda: self._answer(told))

    def _answer(self, told: dict[str, str]) -> None:
        body = msgspec.json.encode(told)
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


async def main(port: int, port_of_redis: int) -> None:
    loop = asyncio.get_running_loop()
    _, redis = await loop.create_connection(Redis, "127.0.0.1", port_of_redis)
    server = await loop.create_server(lambda: Http(redis), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
