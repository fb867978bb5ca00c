"""Reading many replies at once: in order, errors among them, and no longer than the connection's timeout."""

import asyncio
import functools

import pytest
import redis
import redis.asyncio
from redis.exceptions import ResponseError

from reliq.transport import aio_replies
from reliq.transport.errors import connection_ended
from reliq.transport.replies import read_replies
from reliq.transport.resp import pack

TIMEOUT = 0.3
ECHOES = [("ECHO", str(number)) if number % 5 else ("NO-SUCH-COMMAND",) for number in range(200)]


def connection(module, url, patched=False):
    """A connection of redis-py; patched: with a way to read of its own, as tests and other libraries have."""
    pool = module.ConnectionPool.from_url(url, socket_timeout=TIMEOUT, protocol=2)
    made = pool.make_connection()
    if patched:
        own = made.read_response
        made.read_response = functools.partial(own)
    return made


def in_threads(url, commands, patched=False):
    raw = connection(redis, url, patched)
    try:
        raw.connect()
        raw.send_packed_command(pack(commands))
        return read_replies(raw, len(commands))
    finally:
        raw.disconnect()


def in_asyncio(url, commands, patched=False):
    async def run():
        raw = connection(redis.asyncio, url, patched)
        try:
            await raw.connect()
            replies = aio_replies.replies_on(raw)
            assert (replies is None) is patched
            await raw.send_packed_command(pack(commands))
            return await (replies.read(len(commands)) if replies else aio_replies.read_replies(raw, len(commands)))
        finally:
            await raw.disconnect()

    return asyncio.run(run())


BOTH = pytest.mark.parametrize("exchange", [in_threads, in_asyncio])


@BOTH
@pytest.mark.parametrize("count", [1, 7, 8, 200])
@pytest.mark.parametrize("patched", [False, True])
def test_replies_come_in_order_and_errors_are_among_them(url, exchange, count, patched):
    replies = exchange(url, ECHOES[-count:], patched)
    assert len(replies) == count
    for command, reply in zip(ECHOES[-count:], replies, strict=True):
        assert isinstance(reply, ResponseError) if len(command) == 1 else reply == command[1].encode()


def test_redis_py_reads_where_its_private_attributes_are_others(url):
    async def run():
        raw = connection(redis.asyncio, url)
        try:
            await raw.connect()
            stream = raw._writer.transport.get_protocol()
            parser, raw._parser = raw._parser, object()
            assert aio_replies.replies_on(raw) is None
            assert raw._writer.transport.get_protocol() is stream
            raw._parser = parser
            await raw.send_packed_command(pack(ECHOES[-1:]))
            return await aio_replies.read_replies(raw, 1)
        finally:
            await raw.disconnect()

    assert asyncio.run(run()) == [b"199"]


@BOTH
@pytest.mark.parametrize("before", [1, 100])
def test_a_server_that_stops_answering_is_left_after_the_timeout(url, exchange, before):
    with pytest.raises(connection_ended()):
        exchange(url, [*ECHOES[:before], ("BLPOP", "empty", "0"), *ECHOES])


@BOTH
def test_a_server_that_closes_the_connection_is_noticed(url, exchange):
    with pytest.raises(connection_ended()):
        exchange(url, [*ECHOES[:100], ("QUIT",), *ECHOES])


@BOTH
def test_large_replies_come_whole(url, exchange):
    bodies = [bytes([number]) * 300_000 for number in range(20)]
    with redis.Redis.from_url(url) as client:
        client.rpush("list", *bodies)
    assert exchange(url, [("LINDEX", "list", number) for number in range(20)]) == bodies
