"""Parked messages whose time to wait for a signal is over: make them ready again."""

from collections.abc import Sequence

from reliq.features.steps import ops as own
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey

_EVERY = 0.5  #: seconds between two turns
_AT_ONCE = 100  #: messages of a queue in one turn


class SignalTimeouts(Duty[int]):
    """Ends waits for signals that did not come."""

    name = "signals"
    effect = "messages that got no signal in time stay parked, and early signals are kept on"
    interval = _EVERY
    seeks = "waits"
    brings_due = True

    def turn(self, survey: Survey) -> Steps[int]:
        """End the waits of these queues that are over; return how many."""
        ended = 0
        queues = survey.found.get(self.seeks, ())
        for _, (count, _looked) in (yield from survey.attempts.together(self.name, queues, _unpark)):
            ended += count
        return ended


def _unpark(queues: Sequence[QueueKeys]) -> Steps[list[tuple[int, int]]]:
    answers: list[tuple[int, int]] = yield [own.unpark_due(keys, _AT_ONCE) for keys in queues]
    return answers
