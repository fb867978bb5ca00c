"""Messages in flight whose receiver did not delete them in time: make them ready again."""

from collections.abc import Sequence

from reliq.features.receipts import ops as own
from reliq.features.receipts.steps import RETURNED_AT_ONCE
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

_EVERY = 0.25  #: seconds between two turns


class Visibility(Duty[int]):
    """Makes due messages visible."""

    name = "visibility"
    effect = "received messages that were not deleted in time stay invisible, but for receives of the same queue"
    interval = _EVERY
    seeks = "received"
    brings_due = True

    def turn(self, survey: Survey) -> Steps[int]:
        """Make due messages of these queues visible; return how many."""
        returned = 0
        queues = survey.found.get(self.seeks, ())
        for _, (count, *_) in (yield from survey.attempts.together(self.name, queues, _return_due)):
            returned += count
        return returned


def _return_due(queues: Sequence[QueueKeys]) -> Steps[list[tuple[int, int, list[bytes]]]]:
    answers: list[tuple[int, int, list[bytes]]] = yield [own.return_due(keys, RETURNED_AT_ONCE) for keys in queues]
    return answers
