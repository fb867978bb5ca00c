"""`reliq queue delete` of a queue with partitions: all of them go, or none."""

import json

import pytest

from reliq.cli import main
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of_key, home_by_bucket
from reliq.protocol import deletion
from tests.support.state import element
from tests.support.turns import Monitor

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


def delete(app, *arguments):
    return main.main(["queue", "delete", "orders", "--yes", "--url", app.url, *arguments])


@pytest.fixture
def orders(app, client):
    """A queue with four partitions that was used, and is empty now."""
    queue = app.queue("orders")
    queue.configure(partitions=4)
    queue.send_many(["x"] * 400)
    with queue.consumer() as consumer:
        while messages := consumer.claim(limit=1000):
            consumer.ack(*messages)
    silent(client)
    return queue


def silent(client):
    """Forget the producers, as the monitor does, some time after the last send."""
    client.delete(*(QueueKeys(name).producers for name in NAMES))


def keys_left(client):
    return [key for key in client.keys("*") if b"{orders" in key]


def test_all_partitions_go_and_nothing_is_left(app, orders, client):
    assert delete(app) == 0
    assert keys_left(client) == []
    assert client.smembers("reliq:queues") == set()
    assert app.queue("orders").config().partitions == 1


def forget_partitions(app, client, orders):
    orders.configure(partitions=1)
    monitor = Monitor(app.store)
    for _ in range(6):
        monitor.scan()
        monitor.tend_partitions()
    assert [one.name for one in orders.partitions().partitions] == ["orders"]
    silent(client)


def test_nothing_is_left_of_partitions_that_were_forgotten(app, orders, client):
    forget_partitions(app, client, orders)
    assert delete(app) == 0
    assert keys_left(client) == []
    assert client.smembers("reliq:queues") == set()


def test_messages_that_a_forgotten_partition_has_again_are_not_deleted_unless_forced(app, orders, client, capsys):
    """Its node has come back with an older state."""
    forget_partitions(app, client, orders)
    client.sadd("reliq:queues", NAMES[3])
    client.lpush(QueueKeys(NAMES[3]).messages, element("a"), element("b"))
    assert delete(app) == 1
    assert "2 ready" in capsys.readouterr().err
    assert client.llen(QueueKeys(NAMES[3]).messages) == 2
    assert delete(app, "--force") == 0
    assert "it had 2 ready" in capsys.readouterr().out
    assert keys_left(client) == []
    assert client.smembers("reliq:queues") == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_message_in_any_partition_keeps_all_of_them_unless_forced(app, orders, client, capsys, name):
    key = next(key for key in map(str, range(100)) if NAMES[home_by_bucket(4)[bucket_of_key(key)]] == name)
    orders.send("x", key=key)
    silent(client)
    before = sorted(keys_left(client))
    assert delete(app) == 1
    assert "queue 'orders' has messages (1 ready" in capsys.readouterr().err
    assert sorted(keys_left(client)) == before
    assert delete(app, "--force", "--json") == 0
    assert json.loads(capsys.readouterr().out)["had"]["ready"] == 1
    assert keys_left(client) == []


def test_a_recent_send_to_any_partition_keeps_the_queue(app, orders, client, capsys):
    orders.send("x")
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim())
    assert delete(app) == 1
    assert "a producer has sent to queue 'orders'" in capsys.readouterr().err
    assert orders.config().partitions == 4


def test_an_interrupted_deletion_is_repeated(app, orders, client, monkeypatch):
    whole = deletion._delete

    def broken_at_the_first(keys, force):
        if keys.queue == "orders":
            raise KeyboardInterrupt
        return (yield from whole(keys, force))

    monkeypatch.setattr(deletion, "_delete", broken_at_the_first)
    with pytest.raises(KeyboardInterrupt):
        app.store.run(deletion.delete("orders", force=False))
    monkeypatch.undo()
    assert orders.config().partitions == 4
    assert app.store.run(deletion.delete("orders", force=False)).messages == 0
    assert keys_left(client) == []


def test_a_message_that_comes_in_between_is_not_lost(app, orders, client, monkeypatch, capsys):
    whole = deletion._delete
    late: list[str] = []

    def send_before_the_first(keys, force):
        if keys.queue == "orders@partition.1" and not late:
            there = yield from whole(keys, force)
            late.extend(orders.send("x") for _ in range(4))
            return there
        return (yield from whole(keys, force))

    monkeypatch.setattr(deletion, "_delete", send_before_the_first)
    assert delete(app) == 1
    assert "queue 'orders' has messages" in capsys.readouterr().err
    assert len(late) == 4
    assert orders.stats().ready == 4
