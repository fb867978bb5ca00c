"""A queue with partitions, and a cluster of three nodes."""

from collections.abc import Iterator

import pytest
import redis

import reliq
from tests.support.cluster import Cluster


@pytest.fixture
def orders(app: reliq.Reliq) -> reliq.Queue:
    queue = app.queue("orders")
    queue.configure(partitions=4)
    return queue


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(replicas=False) as cluster:
        yield cluster


@pytest.fixture
def emptied(cluster: Cluster) -> Cluster:
    """The cluster without any key."""
    for server in cluster.servers:
        with redis.Redis(port=server.port) as client:
            client.flushall()
    return cluster
