"""A Redis Cluster on this machine."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Self

import redis

from reliq.embedded import EmbeddedRedis
from reliq.errors import ReliqError
from reliq.ops.topology import slot_of
from tests.support.fleet import wait
from tests.support.ports import free_port_with_bus

_SLOTS = 16384
_FAILOVER_AFTER = 1.0  #: seconds without a sign of life
_FLAGS, _MASTER, _EPOCH, _FIRST_SLOTS = 2, 3, 6, 8  #: fields of CLUSTER NODES


class Cluster:
    """A context: masters with an equal share of the slots each, and with a replica each unless `replicas` is False."""

    def __init__(self, masters: int = 3, *, replicas: bool = True) -> None:
        self._masters = masters
        self._size = 2 * masters if replicas else masters
        self._stack = contextlib.ExitStack()
        self.servers: list[EmbeddedRedis] = []

    def __enter__(self) -> Self:
        settings = (
            "--cluster-enabled", "yes", "--cluster-node-timeout", str(round(1000 * _FAILOVER_AFTER)),
            "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
        )  # fmt: skip
        for _ in range(self._size):
            server = EmbeddedRedis(settings=settings, port=free_port_with_bus())
            self.servers.append(self._stack.enter_context(server))
        for place, server in enumerate(self.servers):
            with _client(server) as client:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port)
                if place < self._masters:
                    first, behind = (_SLOTS * number // self._masters for number in (place, place + 1))
                    client.execute_command("CLUSTER", "ADDSLOTS", *range(first, behind))
        ids = [self._id(server) for server in self.servers]
        wait(lambda: all(self._known(one) == set(ids) for one in self.servers), "all nodes of the cluster")
        for place, server in enumerate(self.servers[self._masters :]):
            with _client(server) as client:
                client.execute_command("CLUSTER", "REPLICATE", ids[place])
        wait(self.whole, "the cluster")
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def whole(self) -> bool:
        """Whether all nodes agree on who has the slots, and each master has its replica in step."""
        for server in self.servers:
            with _client(server) as client:
                state = str(client.execute_command("CLUSTER", "INFO"))
                if "cluster_state:ok" not in state or f"cluster_slots_ok:{_SLOTS}" not in state:
                    return False
                info: dict[str, Any] = client.info("replication")
                if info["role"] == "slave" and info["master_link_status"] != "up":
                    return False
        each = 1 if self._size > self._masters else 0
        return all(len(self._replicas(server)) == each for server in self.masters())

    def masters(self) -> list[EmbeddedRedis]:
        """Return the servers that have slots."""
        return [one for one in self.servers if self._slots(one)]

    def master_of(self, key: str) -> EmbeddedRedis:
        """Return the server that has the slot of a key or hash tag."""
        slot = slot_of(key)
        server = next((one for one in self.servers if slot in self._slots(one)), None)
        if server is None:
            raise ReliqError(f"no master has the slot of {key!r}")
        return server

    def keys(self, pattern: str, tag: str) -> list[bytes]:
        """Return the keys that match, of the server that has a hash tag."""
        return self.keys_of(self.master_of(tag), pattern)

    def keys_of(self, server: EmbeddedRedis, pattern: str) -> list[bytes]:
        with _client(server) as client:
            return list(client.execute_command("KEYS", pattern))

    def fail_over_after(self, seconds: float) -> None:
        """Let replicas take over after so long a silence. A busy machine can keep a server silent for a second."""
        for server in self.servers:
            with _client(server) as client:
                client.config_set("cluster-node-timeout", round(1000 * seconds))

    def kill_master(self, key: str) -> float:
        """Kill the master of a key; return when. Its replica takes over, and it comes back as a replica."""
        self.fail_over_after(_FAILOVER_AFTER)
        slot, former = slot_of(key), self.master_of(key)
        living = [one for one in self.servers if one is not former]
        began = time.monotonic()
        former.kill()
        wait(lambda: any(slot in self._slots(one) for one in living), "a promoted replica")
        former.start()
        wait(self.whole, "the cluster after a failover")
        return began

    def _slots(self, server: EmbeddedRedis) -> set[int]:
        """Return the slots that a server has as a master, in its own view."""
        own = next(node for node in self._nodes(server) if "myself" in node[_FLAGS])
        if "master" not in own[_FLAGS]:
            return set()
        ranges = [part.partition("-") for part in own[_FIRST_SLOTS:] if part[0].isdigit()]
        return {slot for first, _, last in ranges for slot in range(int(first), int(last or first) + 1)}

    def move_slot(self, key: str) -> float:
        """Move the slot of a key to another master, key by key, while clients use it; return when that began."""
        slot, source = slot_of(key), self.master_of(key)
        target = next(one for one in self.masters() if one is not source)
        began = time.monotonic()
        with _client(source) as old, _client(target) as new:
            await_epochs([old, new])
            new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self._id(source))
            old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self._id(target))
            while keys := old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
                old.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
            heir = self._id(target)
            for server in (target, source, *self.servers):
                with _client(server) as client, contextlib.suppress(redis.exceptions.ResponseError):  # a replica
                    client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", heir)
        wait(self.whole, "the cluster after a slot was moved")
        return began

    def _nodes(self, server: EmbeddedRedis) -> list[list[str]]:
        """Return the lines of CLUSTER NODES as lists of fields."""
        with _client(server) as client:
            return [line.split() for line in client.execute_command("CLUSTER", "NODES").decode().splitlines()]

    def _known(self, server: EmbeddedRedis) -> set[str]:
        """Return the ids of the nodes that a server knows; during their handshake they have others."""
        return {node[0] for node in self._nodes(server)}

    def _id(self, server: EmbeddedRedis) -> str:
        with _client(server) as client:
            return str(client.execute_command("CLUSTER", "MYID").decode())

    def _replicas(self, server: EmbeddedRedis) -> list[list[str]]:
        own = self._id(server)
        return [node for node in self._nodes(server) if node[_MASTER] == own and "fail" not in node[_FLAGS]]


def await_epochs(clients: Sequence["redis.Redis"]) -> None:
    """Wait until each node knows the epochs of the others.

    A node that takes a slot chooses an epoch after all that it knows. If that is the one of the former owner, a late
    message of that owner takes the slot back.
    """

    def known() -> bool:
        views = [[line.split() for line in client.execute_command("CLUSTER", "NODES").decode().splitlines()]
                 for client in clients]  # fmt: skip
        own = {node[0]: node[_EPOCH] for view in views for node in view if "myself" in node[_FLAGS]}
        return all(own.get(node[0], node[_EPOCH]) == node[_EPOCH] for view in views for node in view)

    wait(known, "the epochs of the cluster's nodes")


def _client(server: EmbeddedRedis) -> "redis.Redis":
    return redis.Redis(port=server.port, socket_timeout=5)
