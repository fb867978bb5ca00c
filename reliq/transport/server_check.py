"""Checks whether a server can hold queues."""

from typing import Any, TypeVar

from reliq.errors import (
    RedisUnsuitable,
    ReliqError,
)
from reliq.ops import Steps, server_info
from reliq.transport.errors import TryAgain

T = TypeVar("T")

OLDEST_REDIS = (6, 2)


def unsuitable(
    info: dict[str, Any], where: str, allow_eviction: bool, cluster: bool = False, known: bool = False
) -> RedisUnsuitable | None:
    """Return why this server cannot hold a queue, judged by its INFO, or None.

    `cluster`: the server was taken for a node of a cluster, whose slot map names the masters. `known`: there was a
    master at this address before. If it is a replica now, a failover is under way: writes are refused temporarily and
    tried again.
    """
    mode, scheme = info.get("redis_mode") or info.get("server_mode"), _scheme(where)  # the second name: Valkey 9
    if not cluster and mode == "cluster":
        return RedisUnsuitable(f"Redis at {where} is a node of a Redis Cluster: use {scheme}+cluster://host:port")
    if mode == "sentinel":
        tls = " with ?sentinel_tls=true" if scheme == "rediss" else ""
        return RedisUnsuitable(f"Redis at {where} is a sentinel: use {scheme}+sentinel://host:26379/service{tls}")
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < OLDEST_REDIS:
        return RedisUnsuitable(f"Redis at {where} is version {version}: reliq needs 6.2 or newer (LMOVE)")
    if info.get("role", "master") != "master" and not (cluster or known):
        return RedisUnsuitable(f"Redis at {where} is a replica: use the URL of its master or of its sentinels")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not allow_eviction:
        return RedisUnsuitable(
            f"Redis at {where} has maxmemory-policy {policy}: when memory is full, it deletes queues. "
            "Set it to noeviction, or allow it with allow_eviction=True (RELIQ_ALLOW_EVICTION=1)"
        )
    return None


def check_server(where: str, allow_eviction: bool, cluster: bool, known: bool = False) -> Steps[None]:
    """Refuse a server that cannot hold a queue; raises RedisUnsuitable. If INFO is forbidden, accept the server."""
    try:
        answers = yield server_info("server", "replication", "memory")
    except (ReliqError, TryAgain) as error:
        if isinstance(error, RedisUnsuitable) and "permission" in str(error):
            return
        raise
    info = {name: value for answer in answers for name, value in answer.items()}
    problem = unsuitable(info, where, allow_eviction, cluster, known)
    if problem is not None:
        problem.of_server = True
        raise problem


def no_cluster(where: str) -> RedisUnsuitable:
    return RedisUnsuitable(f"Redis at {where} is not a cluster: use {_scheme(where)}://")


def _scheme(where: str) -> str:
    """Return how a URL begins that leads to the same servers, with TLS if this one has it."""
    return "rediss" if where.startswith("rediss") else "redis"
