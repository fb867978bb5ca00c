"""Output of messages that have left their queue unhandled: delete it."""

from reliq.features.output import ops as own
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

_AT_ONCE = 100  #: messages of a queue in one turn


class OutputCleanup(Duty[int]):
    """Deletes the output of messages that were cancelled, purged, or deleted as dead letters."""

    name = "output"
    effect = "the output of cancelled and purged messages stays until it expires"
    interval = 1.0
    seeks = "outputs"

    def turn(self, survey: Survey) -> Steps[int]:
        """Delete such outputs of these queues; return how many messages had one."""
        deleted = 0
        for keys in survey.found.get(self.seeks, ()):
            deleted += yield from survey.attempts.of_queue(self.name, keys, _clean(keys), 0)
        return deleted


def _clean(keys: QueueKeys) -> Steps[int]:
    up_to, gone = yield own.gone_outputs(keys, _AT_ONCE)
    return (yield own.drop_outputs(keys, up_to, gone)) if gone else 0
