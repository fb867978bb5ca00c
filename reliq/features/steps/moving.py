"""The steps that take the records of messages elsewhere, and early signals to a new home.

What a message's handler has recorded does not change while a monitor brings the message to its new home: nobody holds
it. A signal may come at any time. So the record is marked first where it is: from then on a signal is given to the new
home, too, and the later value there counts only if the record that was read has none. When the message has entered,
nothing more is stored: its new home may have more by then.
"""

from collections.abc import Sequence

from reliq import ops
from reliq.features.steps import ops as own
from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.ops.coming import Coming
from reliq.protocol.features import Carried
from reliq.runtime.pieces import pieces

_FIELDS = 1000  #: of a record, and their values, that one call stores
_PAGE = 100  #: records with early signals that one call finds, and signals that one stores


def _carry(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[None]:
    """Copy the records of messages that are taken to another home."""
    records = yield [own.leave_record(keys, one.id) for one in coming]
    for one, record in zip(coming, records, strict=True):
        yield from _put(home, one, record)


def _put(home: QueueKeys, one: Coming, record: Sequence[bytes]) -> Steps[None]:
    if record:
        head, *fields = record
        for start in range(0, max(1, len(fields)), _FIELDS):
            yield own.put_record(home, one, head, fields[start : start + _FIELDS])


def _send_on(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[list[Coming]]:
    """Copy the records of dead letters, in which nobody writes any more. Steps that have failed for good run again."""
    if not (yield own.has_records(keys)):
        return []
    records = yield [own.whole_record(keys, one) for one in coming]
    for one, record in zip(coming, records, strict=True):
        yield from _put(home, one, own.revived(record))
    return [one for one, record in zip(coming, records, strict=True) if record]


def _have_come(home: QueueKeys, coming: Sequence[Coming]) -> list[Op[int]]:
    return [own.has_come(home, [one.id for one in coming])]


def _have_gone(home: QueueKeys, coming: Sequence[Coming]) -> list[Op[int]]:
    return [own.does_not_come(home, [one.id for one in coming])]


CARRIED = Carried(_carry, _have_come, _send_on, _have_gone)


def copy_early(first: QueueKeys, new: QueueKeys) -> Steps[None]:
    """Give a new home the early signals that the first one has, before it takes messages."""
    now = yield ops.server_time()
    cursor, more = 0, True
    while more:
        cursor, early = yield own.early_records(first, cursor, _PAGE)
        signals = (yield [own.signals_of(first, identity) for identity, _ in early]) if early else ()
        copies = [
            own.signal(new, identity, name, stored, max(1.0, (until - now) / 1000))
            for (identity, until), names in zip(early, signals, strict=True)
            for name, stored in names.items()
        ]
        yield from pieces(copies, _PAGE)
        more = cursor > 0
