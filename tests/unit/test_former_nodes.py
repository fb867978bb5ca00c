"""Nodes of a cluster come and go, as pods with new addresses do: nothing is kept for those that have gone."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from reliq import ops
from reliq.aio.heartbeat import Heartbeat as AioHeartbeat
from reliq.client.heartbeat import Heartbeat
from reliq.model.keys import QueueKeys
from reliq.ops.topology import Node, Slots
from reliq.protocol.lease import Lease
from reliq.transport.aiostore import AioStore
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.store import Store
from reliq.transport.watch import Watch, Watches
from reliq.worker.idle import Idle
from tests.support.workers import eventually

FORMER, LATTER = ("127.0.0.1", 1), ("127.0.0.1", 2)  #: no server listens on these
URL = "redis+cluster://127.0.0.1:1"
KEYS = QueueKeys("q")
LEASE = Lease(KEYS, "c1", 30.0)


def served_by(node: Node) -> Slots:
    return Slots([[0, 16383, [node[0].encode(), node[1]]]], node)


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(URL)
    store.trust()
    store.learn(served_by(FORMER))
    yield store
    store.close()


def asked(connection: Any) -> list[Node]:
    with suppress(ConnectionLost, TryAgain):
        connection.begin(ops.exists(KEYS.messages))
    return list(connection._connections)


def test_connections_to_a_former_node_are_closed(store: Store) -> None:
    connection = store.connection()
    assert asked(connection) == [FORMER]
    store.learn(served_by(LATTER))
    assert asked(connection) == [LATTER]
    assert not store.former(store._away)


def test_connections_with_a_transaction_stay(store: Store) -> None:
    connection: Any = store.connection()
    asked(connection)
    connection._connections[FORMER].watching = True
    store.learn(served_by(LATTER))
    assert asked(connection) == [FORMER]


def test_connections_of_tasks_to_a_former_node_are_closed() -> None:
    async def asked_twice() -> list[Node]:
        store = AioStore(URL)
        store.trust()
        connection: Any = store.connection()
        for node in (FORMER, LATTER):
            store.learn(served_by(node))
            with suppress(ConnectionLost):
                await connection.perform(ops.exists(KEYS.messages))
        return list(connection._connections)

    assert asyncio.run(asked_twice()) == [LATTER]


def test_the_watch_of_a_former_node_is_stopped(store: Store) -> None:
    watches = Watches(store, store)
    former = watches.of(KEYS.messages)
    store.learn(served_by(LATTER))
    latter = watches.of(KEYS.messages)
    assert former is not latter
    assert list(watches.by_node) == [LATTER]
    watches.stop()
    eventually(lambda: not any(isinstance(one, Watch) for one in threading.enumerate()))


def test_the_heartbeat_to_a_former_node_ends(store: Store) -> None:
    heartbeat = Heartbeat(store, "owner", 30.0, lambda: [LEASE], lambda _: None)
    heartbeat._divide()
    former = heartbeat._parts[FORMER]
    store.learn(served_by(LATTER))
    heartbeat._divide()
    assert list(heartbeat._parts) == [LATTER]
    eventually(lambda: not former.is_alive())
    heartbeat.stop()


def test_the_heartbeat_of_tasks_to_a_former_node_ends() -> None:
    async def tasks() -> tuple[list[Node], int]:
        store = AioStore(URL)
        heartbeat: Any = AioHeartbeat(store, "owner", 30.0, lambda: [LEASE], lambda _: None)
        for node in (FORMER, LATTER):
            store.learn(served_by(node))
            await heartbeat._divide()
            await asyncio.sleep(0)
        parts = list(heartbeat._parts)
        await asyncio.sleep(0)
        count = len(asyncio.all_tasks())
        await heartbeat.stop()
        return parts, count

    assert asyncio.run(tasks()) == ([LATTER], 2)


def test_spare_connections_of_a_worker(store: Store) -> None:
    idle: Any = Idle(store, Any, lambda _: None)  # type: ignore[arg-type]
    idle._spare[FORMER].append((store.connection(), 0.0))
    store.learn(served_by(LATTER))
    idle.look()
    assert not idle._spare


def test_a_map_without_any_node_ends_nothing(store: Store) -> None:
    store.learn(Slots([], FORMER))
    assert store.former({FORMER: None}) == []
