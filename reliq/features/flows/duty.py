"""Flows: tell waiting messages of failures and of what happened in other queues; end flows whose producer died."""

import time
from collections.abc import Sequence
from contextlib import suppress

from reliq import ops
from reliq.features.flows import ops as own
from reliq.features.flows.finishing import Cancellations
from reliq.features.flows.steps import AT_ONCE
from reliq.features.flows.telling import mend, mend_after, tell, tend
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq.protocol.in_parts import InParts
from reliq.runtime.pieces import pieces
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey
from reliq_monitor.rotation import A_TURN

_CALLS = 50  #: of one queue in one turn
_REQUESTS = 20  #: about the members of one flow in one turn
_MOST = 1000  #: flows that one turn looks at
_SOON = 0.25  #: seconds until the next turn while flows are being cancelled or looked at
_STALE = 30.0  #: seconds without a turn after which another monitor may have led


class Telling(Duty[int]):
    """Tells messages that wait what has become of those in other queues, and of those that have failed."""

    name = "flows"
    effect = "messages of flows wait on for others in other queues or partitions, and for others that have failed"
    interval = 0.25
    seeks = "flows"

    def turn(self, survey: Survey) -> Steps[int]:
        """Tell what has happened in these queues; return how much that was."""
        happened = 0
        for keys in survey.found.get(self.seeks, ()):
            happened += yield from survey.attempts.of_queue(self.name, keys, _tell(keys), 0, other_server=True)
        return happened


def _tell(keys: QueueKeys) -> Steps[int]:
    """Tell what has happened in a queue, up to a bounded number of calls."""
    happened = 0
    for _ in range(_CALLS):
        some = yield from tell(keys)
        happened += some
        if not some:
            break
    return happened


class OpenFlows(Duty[int]):
    """Looks at the flows that have not ended, beginning behind those of the turn before."""

    name = "open_flows"
    effect = (
        "flows stay open whose producer died while it sent them, or of which a queue was deleted; messages run of "
        "flows whose canceller died"
    )
    interval = 5.0
    of_queues = False
    common = "@flows"

    def __init__(self) -> None:
        self._first = 0  #: so many of the oldest ones were looked at since the beginning was
        self._cancellations = Cancellations()
        self._looked: dict[str, float] = {}  #: by flow: when its members were looked at
        self._turned_at = 0.0
        self._mending: dict[str, InParts[int]] = {}  #: by flow whose members are being looked at
        self._seen: set[str] = set()  #: the flows of this round over all flows

    @property
    def pause(self) -> float:
        """Seconds until the next turn: few while flows are being cancelled or looked at."""
        return _SOON if self._cancellations or self._mending else self.interval

    def turn(self, survey: Survey) -> Steps[int]:
        """Give up, cancel or forget the flows that need it, and mend the others; return how many members were lost."""
        name, attempts = self.name, survey.attempts
        flows = yield from attempts.of_all(name, ops.one(own.flow_ids(_MOST, self._first)), [])
        now = yield from attempts.of_all(name, ops.one(ops.server_time()), 0)
        self._seen.update(flows)
        heads, moment = (yield from _heads(flows)), time.monotonic()
        if moment > self._turned_at + _STALE:
            self._mending.clear()  # what they have seen may be long ago
        self._turned_at, looked_at = moment, 0
        for flow in flows:
            if looked_at and time.monotonic() > moment + A_TURN:
                break
            looked_at += 1
            tending = tend(flow, heads.get(flow), now, self._cancellations)
            if (yield from attempts.of_all(name, tending, otherwise=True, item=flow, other_server=True)):
                continue
            if flow in heads and moment - self._looked.setdefault(flow, moment) > mend_after(heads[flow], now):
                self._looked[flow] = moment
                self._mending.setdefault(flow, InParts(mend(flow)))
        self._first = self._first + looked_at if looked_at == _MOST or looked_at < len(flows) else 0
        if not self._first:
            self._cancellations.end_round()
            self._looked = {one: at for one, at in self._looked.items() if one in self._seen}
            self._seen = set()
        return (yield from self._mend(survey, moment + A_TURN))

    def _mend(self, survey: Survey, until: float) -> Steps[int]:
        """Look at a part of the members of each flow that is being mended; return how many were lost."""
        lost = 0
        for flow, mending in [*self._mending.items()]:
            del self._mending[flow]  # after an error it begins anew with a later look
            part = mending.go_on(_REQUESTS)
            if (yield from survey.attempts.of_all(self.name, part, otherwise=True, item=flow, other_server=True)):
                lost += mending.result or 0
            else:
                self._mending[flow] = mending
            if time.monotonic() > until:
                break
        return lost


def _heads(flows: Sequence[str]) -> Steps[dict[str, dict[str, str]]]:
    """Read the records of flows, many in one trip; those of a trip that fails are left out, to be read one by one."""
    heads: dict[str, dict[str, str]] = {}
    for some in pieces(flows, AT_ONCE):
        with suppress(Exception):
            heads |= zip(some, (yield [own.flow_head(one) for one in some]), strict=True)
    return heads
