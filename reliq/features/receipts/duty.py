"""Messages in flight whose receiver did not delete them in time: make them ready again."""

from reliq.features.receipts import ops as own
from reliq.features.receipts.ready import RETURNED_AT_ONCE
from reliq.model.keys import QueueKeys
from reliq.ops import Op
from reliq_monitor.duty import DueDuty


class Visibility(DueDuty):
    """Makes due messages visible."""

    name = "visibility"
    effect = "received messages that were not deleted in time stay invisible, but for receives of the same queue"
    interval = 0.25
    seeks = "received"

    @staticmethod
    def call(keys: QueueKeys) -> Op[tuple[int, int, list[bytes]]]:
        """Return the op that makes due messages of a queue visible."""
        return own.return_due(keys, RETURNED_AT_ONCE)
