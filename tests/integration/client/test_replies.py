"""Reading many replies at once: in order, errors among them, and no longer than the connection's timeout."""

import asyncio
import functools
import socket

import pytest
import redis
import redis.asyncio
from redis.exceptions import ResponseError
from redis.utils import HIREDIS_AVAILABLE

from reliq.transport import aio_replies
from reliq.transport.errors import connection_ended
from reliq.transport.parser import Parser
from reliq.transport.replies import read_replies
from reliq.transport.resp import pack
from reliq.transport.target import Target

TIMEOUT = 0.3
ECHOES = [("ECHO", str(number)) if number % 5 else ("NO-SUCH-COMMAND",) for number in range(200)]


def connection(module, url, patched=False, **options):
    """A connection of redis-py; patched: with a way to read of its own, as tests and other libraries have."""
    pool = module.ConnectionPool.from_url(url, socket_timeout=TIMEOUT, protocol=2, **options)
    made = pool.make_connection()
    if patched:
        own = made.read_response
        made.read_response = functools.partial(own)
    return made


def in_threads(url, commands, patched=False, **options):
    raw = connection(redis, url, patched, **options)
    try:
        raw.connect()
        raw.send_packed_command(pack(commands))
        return read_replies(raw, len(commands))
    finally:
        raw.disconnect()


def in_threads_with_own_parser(url, commands, patched=False):
    return in_threads(url, commands, patched, parser_class=Parser)


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


ALL = pytest.mark.parametrize("exchange", [in_threads, in_threads_with_own_parser, in_asyncio])


@ALL
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


@ALL
@pytest.mark.parametrize("before", [1, 100])
def test_a_server_that_stops_answering_is_left_after_the_timeout(url, exchange, before):
    with pytest.raises(connection_ended()):
        exchange(url, [*ECHOES[:before], ("BLPOP", "empty", "0"), *ECHOES])


@ALL
def test_a_server_that_closes_the_connection_is_noticed(url, exchange):
    with pytest.raises(connection_ended()):
        exchange(url, [*ECHOES[:100], ("QUIT",), *ECHOES])


@ALL
def test_large_replies_come_whole(url, exchange):
    bodies = [bytes([number]) * 300_000 for number in range(20)]
    with redis.Redis.from_url(url) as client:
        client.rpush("list", *bodies)
    assert exchange(url, [("LINDEX", "list", number) for number in range(20)]) == bodies


@pytest.fixture
def raw(url):
    made = connection(redis, url, parser_class=Parser)
    made.connect()
    yield made
    made.disconnect()


def test_a_connection_without_a_reply_cannot_be_read(raw):
    assert not raw.can_read(0)
    assert not raw.can_read(0.01)
    assert raw._sock.gettimeout() == TIMEOUT


def test_a_connection_can_be_read_while_replies_or_a_part_of_one_are_unread(raw):
    raw.send_packed_command(pack([("ECHO", "a"), ("ECHO", "b" * 10 * raw._parser.socket_read_size)]))
    assert raw.can_read(5)
    assert raw.read_response() == b"a"
    assert raw.can_read(5)
    assert raw.can_read(0)
    assert raw.read_response() == b"b" * 10 * raw._parser.socket_read_size
    assert not raw.can_read(0)


def test_a_connection_that_the_server_has_closed_is_not_read(raw):
    raw.send_packed_command(pack([("QUIT",)]))
    assert raw.read_response() == b"OK"
    with pytest.raises(connection_ended()):
        raw.can_read(5)


def test_an_interrupted_connection_fails(raw):
    raw._sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(connection_ended()):
        raw.read_response()


def test_connections_of_reliq_read_with_hiredis_or_with_the_own_parser(url):
    made = Target(url).factory(aio=False)()
    assert isinstance(made._parser, redis.connection.DefaultParser if HIREDIS_AVAILABLE else Parser)
