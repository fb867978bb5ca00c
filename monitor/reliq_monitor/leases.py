"""Leases: read those of the consumers of many queues."""

import itertools
from collections.abc import Sequence
from typing import Any

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.runtime.pieces import pieces
from reliq_monitor.known import Known

_AT_ONCE = 1000  #: leases that are read by one command

Leases = Sequence[tuple[str, int | None]]  #: consumers with their deadline, ms of the server's clock; None = no lease


def read_leases(
    queues: Sequence[QueueKeys], known: Known | None = None, together: bool = False
) -> Steps[list[tuple[int, Leases]]]:
    """Read, for each of these queues, the server's time and the leases of the consumers.

    `known`: the consumers of queues as they were read before. `together`: one call may read leases of many queues.
    """
    known = known or Known()
    members = {keys.queue: known.get(keys.consumers) for keys in queues}
    unread = [keys for keys in queues if not isinstance(members[keys.queue], list)]
    now, *answers = yield [ops.server_time(), *(ops.members(keys.consumers) for keys in unread)]
    for keys, some in zip(unread, answers, strict=True):
        members[keys.queue] = some
        known.note(keys.consumers, some or False)
    by_queue = [[keys.lease(one) for one in members[keys.queue]] for keys in queues]
    calls: list[ops.Op[Any]] = [
        ops.lease_ends(page)
        for some in ([list(itertools.chain.from_iterable(by_queue))] if together else by_queue)
        for page in pieces(some, _AT_ONCE)
    ]
    if known.is_notified:  # leases change all the time
        calls = [op for call in calls for op in (ops.unnoticed(), call)]
    answers = (yield calls) if calls else []
    ends = itertools.chain.from_iterable(answers[1::2] if known.is_notified else answers)
    return [(now, [(consumer, next(ends)) for consumer in members[keys.queue]]) for keys in queues]
