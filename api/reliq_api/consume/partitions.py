"""Partitions over HTTP: clients know the queue only; the id of a lease says in which partition its messages are."""

import functools
import random
from collections.abc import Callable, Sequence

from reliq import ops
from reliq.errors import InvalidName, RedisUnavailable, ReliqError
from reliq.model.keys import QueueKeys
from reliq.ops import Steps, Together
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


def with_messages(keys: Sequence[QueueKeys]) -> Steps[list[QueueKeys]]:
    """Return those partitions that have ready messages, in a random order; raises an error if none can be read."""
    try:
        counts = yield ops.ready_counts(keys)
    except RedisUnavailable:  # a node is away: the partitions on the others are asked without it
        answers = yield Together([ops.one(*ops.ready_counts([one])) for one in keys])
        if all(isinstance(answer, ReliqError) for answer in answers):
            raise
        counts = [0 if isinstance(answer, ReliqError) else answer for answer in answers]
    found = [one for one, count in zip(keys, counts, strict=True) if count]
    random.shuffle(found)
    return found
