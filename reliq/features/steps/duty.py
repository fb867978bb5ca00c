"""Parked messages whose time to wait for a signal is over: make them ready again."""

from reliq.features.steps import ops as own
from reliq.model.keys import QueueKeys
from reliq.ops import Op
from reliq_monitor.duty import DueDuty

_AT_ONCE = 100  #: messages of a queue in one turn


class SignalTimeouts(DueDuty):
    """Ends waits for signals that did not come."""

    name = "signals"
    effect = "messages that got no signal in time stay parked, and early signals are kept on"
    interval = 0.5
    seeks = "waits"

    @staticmethod
    def call(keys: QueueKeys) -> Op[tuple[int, int]]:
        """Return the op that ends waits of a queue."""
        return own.unpark_due(keys, _AT_ONCE)
