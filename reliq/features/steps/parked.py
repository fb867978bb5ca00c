"""The steps of parked messages: who waits, and how an operator takes them out of their place."""

from reliq.features.steps import ops as own
from reliq.features.steps.ops import Parked
from reliq.model.found import Place
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.ops.schema import Counter
from reliq.protocol.features import Hidden
from reliq.protocol.homes import QueueHomes
from reliq.runtime.pieces import pieces

_PAGE = 500  #: parked messages that one call reads
_REMOVED = 10  #: of them, so many that one call removes: each takes 0.1 to 0.2 ms


def parked_in(homes: QueueHomes, limit: int) -> Steps[list[Parked]]:
    """Return parked messages, those that wait longest first among up to `limit` that were found."""
    found: list[Parked] = []
    for home in (yield from homes.every()):
        cursor, more = 0, True
        while more and len(found) < limit:
            cursor, some = yield own.scan_parked(home.keys, cursor, _PAGE)
            found += some
            more = cursor > 0
    return sorted(found, key=lambda one: one.since)[:limit]


def _withdraw(keys: QueueKeys, identity: str, call: str) -> Steps[bool]:
    return bool((yield own.remove_parked(keys, Counter.CANCELLED, [identity], call)))


def _purge(keys: QueueKeys) -> Steps[int]:
    removed, cursor, more = 0, 0, True
    while more:  # a page may be empty before the end: Redis looks at a bounded number of buckets
        cursor, some = yield own.scan_parked(keys, cursor, _PAGE)
        for few in pieces([one.id for one in some], _REMOVED):
            removed += yield own.remove_parked(keys, Counter.PURGED, few)
        more = cursor > 0
    return removed


WAITING = Hidden(
    Place.PARKED, own.parked_element, _withdraw, _purge,
    (lambda keys: keys.parked, lambda stored: stored.partition(b"\n")[2]),
)  # fmt: skip
