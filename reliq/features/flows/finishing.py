"""Cancel the flows whose canceller may have died: a monitor does it, a part of it in each turn."""

from reliq.features.flows.model import FLOW
from reliq.features.flows.steps import give_up, homes_of, note_cancelled
from reliq.ops import Steps
from reliq.protocol.features import CANCELS
from reliq.protocol.in_parts import InParts

_CALLS = 200  #: of one flow in one turn: a sweep looks at 250 messages in each


class Cancellations:
    """The flows that are being cancelled. All of it may be repeated, and done by several at the same time."""

    def __init__(self) -> None:
        self._begun: dict[str, InParts[None]] = {}
        self._tended: set[str] = set()  #: the flows that this round over all flows has gone on with

    def __bool__(self) -> bool:
        return bool(self._begun)

    def end_round(self) -> None:
        """Forget the flows that the round has not gone on with: they have ended, or another one has cancelled them."""
        self._begun = {flow: part for flow, part in self._begun.items() if flow in self._tended}
        self._tended = set()

    def go_on(self, flow: str) -> Steps[None]:
        """Do a part of the work for a flow. After an error it begins anew."""
        self._tended.add(flow)
        part = self._begun.pop(flow, None) or InParts(_cancel(flow))
        if not (yield from part.go_on(_CALLS)):
            self._begun[flow] = part


def _cancel(flow: str) -> Steps[None]:
    """Do what `cancel_flow` does: give up the members that wait, then cancel the others, wherever they are."""
    queues = yield from give_up(flow, "cancelled")
    for one, queue in queues:
        for keys in (yield from homes_of(queue)):
            for cancel in CANCELS:
                yield from cancel(keys, {FLOW: one})
    yield from note_cancelled(queues)
