"""The homes of queues over HTTP: clients know the queue only; the id of a lease says in which home its messages are."""

import functools
from collections.abc import Callable

from reliq.errors import InvalidName
from reliq.model.keys import QueueKeys
from reliq.protocol.homes import QueueHomes
from reliq.protocol.producer import ProducerPool

HomesOf = Callable[[str], QueueHomes]

_KNOWN_MOST = 10_000  #: queues whose homes are remembered


def remembered_homes() -> HomesOf:
    """Return a function that answers the homes of a queue, the same object for each of its callers."""
    pool = ProducerPool()
    return functools.lru_cache(_KNOWN_MOST)(lambda queue: QueueHomes(queue, pool))


def lease_id(keys: QueueKeys, consumer: str) -> str:
    """Return the id of a lease for clients: the id of the consumer and, except for the first home, that of its home."""
    return consumer + keys.queue.removeprefix(keys.logical)


def holder(queue: str, lease: str) -> tuple[QueueKeys, str]:
    """Return the home and the consumer that a lease id names. Neither needs to exist."""
    consumer, at, home = lease.partition("@")
    try:
        return QueueKeys(queue + at + home), consumer
    except InvalidName:  # too long: no home has this name
        return QueueKeys(queue), lease
