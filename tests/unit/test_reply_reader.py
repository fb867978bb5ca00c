"""Replies put together from pieces: the same ones, wherever the pieces end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio.connection import DefaultParser
from redis.exceptions import BusyLoadingError, InvalidResponse, NoScriptError

from reliq.transport.reply_reader import ReplyReader

VALUES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40) | st.just(b"x" * 5000),
    lambda some: st.lists(some, max_size=4),
    max_leaves=12,
)


def reader() -> ReplyReader:
    return ReplyReader(DefaultParser(socket_read_size=1).parse_error)


def encoded(value) -> bytes:
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(map(encoded, value))


@given(st.lists(VALUES, max_size=5), st.data())
def test_replies_are_the_same_wherever_they_are_cut(values, data):
    whole, read, found = b"".join(map(encoded, values)), reader(), []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        found += read.feed(whole[:cut])
        whole = whole[cut:]
    assert found == values


def test_a_status_is_bytes_and_a_list_may_be_none():
    assert reader().feed(b"+OK\r\n*-1\r\n*0\r\n") == [b"OK", None, []]


def test_an_error_is_a_reply_also_in_a_list():
    first, (one, second) = reader().feed(b"-NOSCRIPT none\r\n*2\r\n:1\r\n-ERR other\r\n")
    assert isinstance(first, NoScriptError)
    assert (one, str(second)) == (1, "other")


@pytest.mark.parametrize(("reply", "error"), [(b"-LOADING data\r\n", BusyLoadingError), (b"!3\r\n", InvalidResponse)])
def test_what_ends_the_connection_is_raised(reply, error):
    with pytest.raises(error):
        reader().feed(reply)
