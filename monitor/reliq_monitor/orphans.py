"""Orphans: consumers that hold messages and that no monitor knows of, because somebody removed them from the set."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.observability.snapshot import every_queue
from reliq.ops import Steps

_SCAN_STEP = 1000


def find_orphans(queues: Sequence[str] = (), repair: bool = False) -> Steps[dict[str, list[str]]]:
    """By queue. `repair`: make them known, so that the monitor returns what they hold; nothing is deleted."""
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
        # A queue's name has none of the characters that a pattern gives a meaning to.
        after, names = yield ops.command("SCAN", cursor, "MATCH", prefix + "*", "COUNT", _SCAN_STEP)
        holding |= {name.decode().removeprefix(prefix) for name in names}
        cursor = int(after)
        if not cursor:
            # Asked for afterwards: a consumer registers before it can hold anything.
            return sorted(holding - set((yield ops.members(keys.consumers))))
