"""Orphans: consumers that hold messages but are missing from the set of consumers, so that no monitor sees them."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys, logical_name
from reliq.ops import Steps
from reliq.protocol.partial_reads import QUEUES, or_unseen

_SCAN_STEP = 1000


def find_orphans(queues: Sequence[str], repair: bool) -> Steps[dict[str, list[str]]]:
    """Find orphans by queue; without `queues`, of all. `repair`: register them, so that their messages are returned."""
    found: dict[str, list[str]] = {}
    every = yield from or_unseen(QUEUES, ops.one(ops.queue_names()), [])
    for queue in sorted({*queues, *(one for one in every if logical_name(one) in queues)}) if queues else every:
        keys = QueueKeys(queue)
        found[queue] = yield from or_unseen(f"queue {queue}", _orphans_of(keys), [])
        if repair and found[queue]:
            yield [ops.announce(queue), ops.add_consumers(keys, found[queue])]
    return found


def _orphans_of(keys: QueueKeys) -> Steps[list[str]]:
    holding: set[str] = set()
    cursor = 0
    while True:
        cursor, consumers = yield ops.scan_processing(keys, cursor, _SCAN_STEP)
        holding.update(consumers)
        if not cursor:
            # Read afterwards: a consumer registers before it can hold anything.
            return sorted(holding - set((yield ops.members(keys.consumers))))
