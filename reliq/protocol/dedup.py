"""What the other homes of a message know of its deduplication key.

A home keeps its deduplication keys when the number of partitions changes. A send asks the homes of its key one after
another; a message that waits in one home before it enters the queue, staged or prepared, is looked up in the others.
"""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.model.partitions import bucket_of_digest
from reliq.ops import Steps


def first_elsewhere(keys: QueueKeys, wanted: Sequence[tuple[str, str]]) -> Steps[list[bytes]]:
    """Return what the other homes of each dedup key know of its first message; b"" = nothing.

    `wanted`: the digests of the keys, each with the group of its message. Returns an empty list if the queue has had no
    other number of partitions.
    """
    queue = keys.logical
    layout = (yield ops.layout(QueueKeys(queue))) if wanted else None
    if layout is None or layout.before == layout.count:
        return []
    homes = [layout.homes(queue, bucket_of_digest(group or digest), kept=True) for digest, group in wanted]
    asked = [
        (place, ops.first_of(QueueKeys(home), digest))
        for place, (digest, _) in enumerate(wanted)
        for home in homes[place]
        if home != keys.queue
    ]
    known = [b""] * len(wanted)
    answers = (yield [op for _, op in asked]) if asked else ()
    for (place, _), answer in zip(asked, answers, strict=True):
        known[place] = known[place] or answer
    return known
