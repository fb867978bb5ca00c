"""Partitions over HTTP: clients know the queue only; the id of a lease says in which partition its messages are."""

import functools
from collections.abc import Callable

from reliq.errors import InvalidName
from reliq.model.keys import QueueKeys
from reliq.protocol.partitions import Partitions
from reliq.protocol.producer import ProducerPool

PartitionsOf = Callable[[str], Partitions]

_KNOWN_MOST = 10_000  #: queues whose partitions are remembered


def remembered_partitions() -> PartitionsOf:
    """Return a function that answers the partitions of a queue, the same object for each of its callers."""
    pool = ProducerPool()
    return functools.lru_cache(_KNOWN_MOST)(lambda queue: Partitions(queue, pool))


def lease_id(keys: QueueKeys, consumer: str) -> str:
    """Return the id that a client gets for a lease: that of the consumer and, but for the first one, its partition."""
    return consumer + keys.queue.removeprefix(keys.logical)


def holder(queue: str, lease: str) -> tuple[QueueKeys, str]:
    """Return the partition and the consumer that a lease id names. There may be neither."""
    consumer, at, partition = lease.partition("@")
    try:
        return QueueKeys(queue + at + partition), consumer
    except InvalidName:  # too long: no partition has this name
        return QueueKeys(queue), lease
