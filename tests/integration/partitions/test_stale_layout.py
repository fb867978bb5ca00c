"""Calls that must reach every partition, in a process with an earlier layout that had lost the first partition."""

import pytest

import reliq
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of_key, home_by_bucket
from tests.support.turns import Monitor
from tests.support.workers import eventually, working


@pytest.fixture
def stranger(app: reliq.Reliq, url: str):
    """The queue in a process that has read its layout before the latest change, and lost the first partition since."""
    app.queue("orders").configure(partitions=2)
    with reliq.Reliq(url) as other:
        queue = other.queue("orders")
        queue.stats()
        app.queue("orders").configure(partitions=4)
        for _ in range(3):
            monitor = Monitor(app.store)
            monitor.scan()
            monitor.tend_partitions()
        homes = queue._steps.homes
        homes._read_at = float("-inf")
        homes.note_away("orders")
        assert homes.layout.count == 2
        yield queue


#: Of a new partition.
KEY = next(f"k{number}" for number in range(100) if home_by_bucket(4)[bucket_of_key(f"k{number}")] == 3)

CALLS = {
    "cancel": lambda queue, identity: queue.cancel(identity) == "cancelled",
    "cancel of a key": lambda queue, identity: queue.cancel_many(key=KEY).cancelled == 1,
    "purge": lambda queue, identity: queue.purge() == 1,
    "find": lambda queue, identity: queue.find(identity).place == "ready",
    "pause": lambda queue, identity: queue.pause() is None,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_partition_that_was_added_meanwhile_is_not_left_out(app, client, stranger, call):
    identity = app.queue("orders").send("body", key=KEY)
    assert CALLS[call](stranger, identity)
    if call == "pause":
        assert client.hget(QueueKeys("orders@partition.3").config, "paused")


def test_a_signal_reaches_a_message_that_waits_in_a_partition_that_was_added_meanwhile(app, stranger):
    orders = app.queue("orders")

    @app.handler("orders")
    def wait(message):
        return message.wait("go")

    identity = orders.send("body", key=KEY)
    with working(app):
        eventually(lambda: orders.stats().parked == 1)
        assert stranger.signal(identity, "go")
        eventually(lambda: orders.stats().counters.get("acked") == 1)
