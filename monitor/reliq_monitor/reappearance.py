"""Reappearance: announce deleted queues again that a producer has sent to since, without announcing them itself."""

import itertools

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.deletion import announce_if_used
from reliq.protocol.home import ANNOUNCE_EVERY
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

_AT_ONCE = 100  #: deleted queues that one turn looks at
_LOOKED_AT_FOR = 2 * ANNOUNCE_EVERY  #: seconds after a deletion: later each producer announces what it sends to


class Reappearance(Duty[int]):
    """Looks at queues that were deleted lately."""

    name = "deleted queues"
    effect = "what a producer sends in the minute after a forced deletion may be in a queue that no list shows"
    interval = 5.0
    of_queues = False
    common = "@deleted"

    def turn(self, survey: Survey) -> Steps[int]:
        """Look at deleted queues; return how many."""
        name, attempts = self.name, survey.attempts
        deleted = yield from attempts.of_all(name, ops.one(ops.deleted_queues()), {})
        if not deleted:
            return 0
        now = yield from attempts.of_all(name, ops.one(ops.server_time()), 0)
        over = []
        for queue, at in itertools.islice(deleted.items(), _AT_ONCE):
            looked = yield from attempts.of_all(name, _look(queue), otherwise=False, item=queue, other_server=True)
            if looked and now - int(at) > _LOOKED_AT_FOR * 1000:
                over.append(queue)
        if over:
            yield from attempts.of_all(name, ops.one(ops.forget_deleted(over)), 0)
        return len(deleted)


def _look(queue: str) -> Steps[bool]:
    yield from announce_if_used(QueueKeys(queue))
    return True
