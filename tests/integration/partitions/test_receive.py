"""Receiving from a queue with partitions."""

import asyncio
import threading
import time

import pytest

import reliq
from reliq import aio
from reliq.embedded import EmbeddedRedis
from tests.support.crash import crash
from tests.support.workers import eventually


@pytest.fixture
def restarting(tmp_path):
    """A server with an append-only file, and what kills it and starts it again after so many seconds."""
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with EmbeddedRedis(tmp_path, options) as server:
        later: list[threading.Thread] = []

        def restart(seconds):
            crash(server)

            def start():
                time.sleep(seconds)
                server.start()

            later.append(threading.Thread(target=start))
            later[-1].start()

        yield server, restart
        for one in later:
            one.join()


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("wait", [0, 20])
def test_a_receive_outlasts_a_restart_of_redis(restarting, how, wait):
    """The call to each home is made once; the receive repeats them for five seconds, as any call."""
    server, restart = restarting
    with reliq.Reliq(server.url) as app:
        queue = app.queue("orders")
        queue.configure(partitions=3)
        queue.send("x", key="k")

        async def take_async():
            async with aio.Reliq(server.url) as one:
                other = one.queue("orders")
                await other.stats()  # it knows the partitions
                restart(1.0)
                return await other.receive(wait=wait)

        if how == "async":
            received = asyncio.run(take_async())
        else:
            queue.stats()
            restart(1.0)
            received = queue.receive(wait=wait)
        received = received or eventually(queue.receive)  # the partition with the message may be back last
        assert [one.message.body for one in received] == [b"x"]


def test_an_attempt_is_repeated_in_whichever_partition_it_was(orders):
    for number in range(40):
        orders.send("x", key=f"key {number}")
    first = orders.receive(limit=2, attempt="one")
    assert len(first) == 2
    for _ in range(6):
        again = orders.receive(limit=2, attempt="one")
        assert [one.receipt for one in again] == [one.receipt for one in first]
    assert {one.message.id for one in orders.receive(limit=2, attempt="two")}.isdisjoint(
        one.message.id for one in first
    )
