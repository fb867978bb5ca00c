"""Orphans: consumers that hold messages but are missing from the set of consumers, so that no monitor sees them."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.observability.snapshot import every_queue
from reliq.ops import Steps

_SCAN_STEP = 1000


def find_orphans(queues: Sequence[str] = (), repair: bool = False) -> Steps[dict[str, list[str]]]:
    """Find orphans by queue. `repair`: register them, so that the monitor returns their messages."""
    found: dict[str, list[str]] = {}
    for queue in queues or (yield from every_queue()):
        keys = QueueKeys(queue)
        found[queue] = yield from _orphans_of(keys)
        if repair and found[queue]:
            yield [ops.announce(queue), ops.command("SADD", keys.consumers, *found[queue])]
    return found


def _orphans_of(keys: QueueKeys) -> Steps[list[str]]:
    prefix = keys.processing("")
    holding: set[str] = set()
    cursor = 0
    while True:
        # Queue names contain no special characters of patterns.
        after, names = yield ops.command("SCAN", cursor, "MATCH", prefix + "*", "COUNT", _SCAN_STEP)
        holding |= {name.decode().removeprefix(prefix) for name in names}
        cursor = int(after)
        if not cursor:
            # Read afterwards: a consumer registers before it can hold anything.
            return sorted(holding - set((yield ops.members(keys.consumers))))
