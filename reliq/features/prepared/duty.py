"""Prepared messages without a decision in time: put questions, and give up after a number of them."""

import logging
from collections.abc import Sequence

from reliq import ops
from reliq.features.prepared.steps import ask_overdue, overdue
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey, pages

log = logging.getLogger("reliq.monitor")


class PreparedTimeouts(Duty[tuple[int, int]]):
    """Puts questions about overdue prepared messages."""

    name = "prepared"
    effect = "check-backs of prepared messages are not asked"

    def turn(self, survey: Survey) -> Steps[tuple[int, int]]:
        """Put questions for these queues; return how many, and how many messages became dead letters."""
        attempts, asked, died = survey.attempts, 0, 0
        for page in pages((yield from survey.having(self.name, lambda keys: keys.prepared, survey.queues))):
            for keys, ids in (yield from attempts.together(self.name, page, _overdue)):
                if ids:
                    counts = yield from attempts.of_queue(self.name, keys, ask_overdue(keys, ids), (0, 0))
                    asked, died = asked + counts[0], died + counts[1]
        if asked or died:
            log.info("prepared asked=%d died=%d", asked, died)
        return asked, died


def _overdue(queues: Sequence[QueueKeys]) -> Steps[list[list[bytes]]]:
    now = yield ops.server_time()
    ids: list[list[bytes]] = yield [overdue(keys, now) for keys in queues]
    return ids
