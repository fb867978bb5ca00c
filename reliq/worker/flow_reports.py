"""What a worker tells Redis beside its settlements: how runs ended, for the circuit breaker, and holds of the queue."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from reliq import ops
from reliq.contract.outcomes import FAILED, PASSED, counters_of
from reliq.model.breaker import Breaker
from reliq.model.element import LATEST
from reliq.model.message import Message
from reliq.ops import Destination, Move
from reliq.ops.schema import Counter
from reliq.protocol.consumer import ConsumerSteps

log = logging.getLogger("reliq.worker")

_FAILED, _PASSED = counters_of(FAILED), counters_of(PASSED)


class FlowReports:
    """Makes the ops that go beside the settlements of one queue."""

    def __init__(self, steps: ConsumerSteps, rule: Breaker | None) -> None:
        self._steps = steps
        self._rule = rule
        self._holds: deque[tuple[float, str | None]] = deque()
        self.hold = self._holds.append  #: hold the queue (None) or a group, with the next settlement; any thread
        self._probe_suspended = False
        self.hold_others: Callable[[float], None] = lambda _: None  #: hold the queue's other homes
        steps.limits.reports = rule is not None

    def reports_on(self, acks: Sequence[bytes], moves: list[Move]) -> list[ops.Op[Any]]:
        """Return the ops that go with these outcomes. The probe of a breaker goes back uncharged if it has failed."""
        reports: list[ops.Op[Any]] = []
        while self._holds:
            seconds, group = self._holds.popleft()
            if group is None:
                reports.append(ops.hold(self._steps.keys, seconds))
                self.hold_others(seconds)
            elif group and not group.startswith(LATEST):  # else the message has no key
                reports.append(ops.hold_key(self._steps.keys, group, seconds))
        if self._rule is not None:
            failed = sum(move.counter in _FAILED for move in moves)
            passed = len(acks) + sum(_passed(move) for move in moves)
            probe = self._end_probe(acks, moves)
            if self._probe_suspended:
                self._probe_suspended, probe = False, "passed"
            if passed or failed or probe:
                op = ops.breaker(self._steps.keys, self._rule, passed, failed, probe)
                read = op.read
                reports.append(msgspec.structs.replace(op, read=lambda reply: self._log(*read(reply))))
        return reports

    def note_suspended(self, message: Message) -> None:
        """Note that a durable handler waits: a probe that came so far has passed. Any thread."""
        if message.element == self._steps.limits.probe:
            self._steps.limits.probe, self._probe_suspended = None, True

    def _end_probe(self, acks: Sequence[bytes], moves: list[Move]) -> str:
        """Return how the probe ended: "untried" if its handler did not run, "" if it is not among these outcomes."""
        probe = self._steps.limits.probe
        if probe is None:
            return ""
        if probe in acks:
            self._steps.limits.probe = None
            return "passed"
        for place, move in enumerate(moves):
            if move.element == probe:
                self._steps.limits.probe = None
                if move.counter in _FAILED:
                    moves[place] = _put_last(self._steps.held[probe])
                    return "failed"
                return "passed" if _passed(move) else "untried"
        return ""

    def _log(self, before: str, now: str) -> None:
        if before == now:
            return
        queue = self._steps.keys.queue
        if now == "closed":
            log.info("breaker_closed queue=%s: the probe passed, messages start again", queue)
        elif before == "half_open":
            log.warning("breaker_open queue=%s: the probe failed, and went back uncharged", queue)
        else:
            log.warning("breaker_open queue=%s: too many runs failed; no message starts until a probe passes", queue)


def _passed(move: Move) -> bool:
    """Whether a handler ran and did not fail; it does not run for a message that was handled before."""
    return move.counter in _PASSED and move.destination is not Destination.GONE


def _put_last(message: Message) -> Move:
    """Return the move behind all other messages, uncharged: if this one fails by itself, the next probe is another."""
    return Move(message.element, Destination.HEAD, Counter.RELEASED, message.id, message.again())
