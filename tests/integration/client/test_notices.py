"""Notices: a server tells of each change in what a connection has read; where it does not, nothing stands."""

import time

import pytest

from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.transport import notices
from reliq.transport.notices import Notices
from reliq.transport.store import Store
from tests.support.proxy import SilentProxy
from tests.support.workers import eventually


@pytest.fixture
def told():
    return []


@pytest.fixture
def reader(url, told):
    connection = Store(url).connection()
    connection.notices = Notices(told.append)
    yield connection
    connection.notices.end()
    connection.close()


def read(reader, *keys):
    reader.perform([ops.exists(key) for key in keys])


def heard(reader, told):
    def some():
        reader.notices.take()
        return told

    return eventually(some)


def test_a_change_is_told_once_until_the_key_is_read_again(reader, told, client):
    read(reader, "a", "b")
    client.lpush("a", 1)
    assert heard(reader, told) == [["a"]]
    told.clear()
    client.lpush("a", 2)
    client.lpush("b", 1)
    assert heard(reader, told) == [["b"]]
    told.clear()
    read(reader, "a")
    client.delete("a")
    assert heard(reader, told) == [["a"]]


def test_a_script_that_writes_and_a_key_that_expires_are_told(reader, told, client):
    client.set("b", 1, px=1000)
    read(reader, "a", "b")
    client.eval("redis.call('ZADD', KEYS[1], 1, 'x')", 1, "a")
    assert heard(reader, told) == [["a"]]
    told.clear()
    assert heard(reader, told) == [["b"]]


def test_what_is_read_unnoticed_is_not_told(reader, told, client):
    reader.perform([ops.exists("b"), ops.unnoticed(), ops.exists("a")])
    client.set("a", 1)
    client.set("b", 1)
    assert heard(reader, told) == [["b"]]


def test_where_nothing_is_told_a_key_can_be_read_unnoticed(store, client):
    """A slot has moved to a node that tells another connection, or a server has no room for the second connection."""
    client.set("a", 1)
    assert store.call([ops.unnoticed(), ops.exists("a")])[1] == 1


def test_after_the_loss_of_either_connection_any_key_may_have_changed(reader, told, client):
    for name in ("reading", "reliq-notices"):
        read(reader, "a")
        reader.perform(ops.Op(("CLIENT", "SETNAME", "reading")))
        told.clear()
        for one in client.client_list():
            if one["name"] == name:
                client.client_kill_filter(_id=one["id"])
        if name == "reading":
            reader.close()
            read(reader, "a")
        assert heard(reader, told) == [None]
    read(reader, "a")
    assert reader.notices.active
    told.clear()
    client.set("a", 1)
    assert heard(reader, told) == [["a"]]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(notices, "QUIET", 0.2)
    monkeypatch.setattr(notices, "ANSWERS_WITHIN", 0.5)


def test_a_connection_for_notices_that_the_network_drops_without_a_word_is_made_again(url, told, client, impatient):
    with SilentProxy(client.get_connection_kwargs()["port"]) as proxy:
        connection = Store(proxy.url).connection()
        connection.notices = Notices(told.append)
        read(connection, "a")
        assert proxy.drop(b"reliq-notices") == 1
        client.set("a", 1)
        assert heard(connection, told) == [None]
        told.clear()
        read(connection, "a")
        client.set("a", 2)
        assert heard(connection, told) == [["a"]]
        connection.notices.end()
        connection.close()


def test_notices_of_a_server_with_nothing_to_tell_go_on(reader, told, client, impatient):
    read(reader, "a")
    for _ in range(15):
        reader.notices.take()
        time.sleep(0.1)
    assert reader.notices.active
    assert told == []
    client.set("a", 1)
    assert heard(reader, told) == [["a"]]


def test_a_reader_that_was_paused_for_long_does_not_take_its_server_for_silent(reader, told, client, impatient):
    read(reader, "a")
    client.set("a", 1)
    time.sleep(1)
    assert heard(reader, told) == [["a"]]
    assert reader.notices.active


def test_a_flush_of_the_server_may_have_changed_any_key(reader, told, client):
    read(reader, "a")
    client.flushall()
    assert heard(reader, told) == [None]


@pytest.mark.parametrize("right", ["-client|tracking", "-client|caching"])
def test_where_it_is_not_allowed_reads_go_on_without_notices(client, url, told, right):
    client.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", right)
    try:
        connection = Store(url.replace("//", "//narrow:pw@")).connection()
        connection.notices = Notices(told.append)
        read(connection, "a")
        assert not connection.notices.active
        assert not connection.notices.wanted  # at once: it is tried again after a while
        connection.notices.take()
        assert told == []
        connection.close()
    finally:
        client.execute_command("ACL", "DELUSER", "narrow")


def test_a_server_that_is_gone_ends_the_notices(told):
    with EmbeddedRedis() as server:
        connection = Store(server.url).connection()
        connection.notices = Notices(told.append)
        read(connection, "a")
        assert connection.notices.active
    assert heard(connection, told) == [None]
    assert not connection.notices.active
    connection.close()
