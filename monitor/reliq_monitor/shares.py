"""Shares: which of several monitors leads which queue. All of them compute the same from the same two lists.

Rendezvous hashing: each queue ranks the monitors by a hash of both, and the first one leads it. So when a monitor comes
or goes, the queues of the others stay where they are. A limit keeps the shares even.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

_UNEVENNESS = 1.25  #: the largest share, as a multiple of the mean


def share_of(monitor: str, monitors: Sequence[str], queues: Sequence[str]) -> list[str]:
    """Return the queues that one of the monitors leads."""
    if len(monitors) < 2:
        return list(queues) if monitor in monitors else []
    mean = len(queues) / len(monitors)
    limit = max(math.ceil(mean), int(mean * _UNEVENNESS))
    led: Counter[str] = Counter()
    share: list[str] = []
    for queue in sorted(queues):
        leader = _leader_of(queue, [one for one in monitors if led[one] < limit])
        led[leader] += 1
        if leader == monitor:
            share.append(queue)
    return share


def leads(monitor: str, monitors: Sequence[str], work: str) -> bool:
    """Whether one of the monitors leads a piece of work that belongs to no queue."""
    return monitor in monitors and _leader_of(work, monitors) == monitor


def _leader_of(queue: str, monitors: Sequence[str]) -> str:
    return max(monitors, key=lambda one: hashlib.blake2b(f"{one} {queue}".encode(), digest_size=8).digest())
