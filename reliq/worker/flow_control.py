"""What a worker tells Redis beside its settlements: how runs ended, for the circuit breaker, and holds of the queue."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from reliq import ops
from reliq.contract.outcomes import FAILED, PASSED, counters_of
from reliq.model.breaker import Breaker
from reliq.model.element import LATEST
from reliq.model.message import Message
from reliq.ops import Destination, Move
from reliq.ops.schema import Counter
from reliq.protocol.consumer import ConsumerSteps
from reliq.worker.drained import drained

log = logging.getLogger("reliq.worker")


class PendingHold(NamedTuple):
    """A hold, which the next settlement makes, of a queue or a key of it, until a moment by time.monotonic()."""

    until: float
    group: str | None  #: of the key; None: the whole queue
    is_new: bool = True  #: the other homes of the queue are not held yet


_FAILED, _PASSED = counters_of(FAILED), counters_of(PASSED)


class FlowReport(NamedTuple):
    """What is reported with one settlement, and again with the next one if that fails."""

    ops: list[ops.Op[Any]]
    holds: list[PendingHold]
    suspended: list[bool]
    probe: str


class FlowReports:
    """What the settlements of one queue report: its holds, and how many runs have failed or passed."""

    def __init__(self, steps: ConsumerSteps, rule: Breaker | None) -> None:
        self._steps = steps
        self._rule = rule
        self._holds: deque[PendingHold] = deque()
        self._suspended: deque[bool] = deque()  #: of each run without a settlement whether it has failed
        self._probe_ended = ""  #: how the probe of a breaker ended, which is not told yet
        self.hold_others: Callable[[float], None] = lambda _: None  #: hold the queue's other homes
        steps.limits.reports = rule is not None

    def take(self, acks: Sequence[bytes], moves: list[Move]) -> FlowReport:
        """Take what is to be reported with this settlement.

        The move of a probe that has failed is replaced in `moves`: it goes back behind all others, uncharged.
        """
        holds: list[PendingHold] = drained(self._holds)
        reports = [op for hold in holds for op in self._hold_ops(hold)]
        suspended: list[bool] = drained(self._suspended)
        probe = ""
        if self._rule is not None:
            known = self._steps.was_unanswered  # those may be counted
            passed = suspended.count(False) + sum(not known(element) for element in acks)
            passed += sum(_passed(move) and not known(move.element) for move in moves)
            failed = suspended.count(True)
            failed += sum(move.counter in _FAILED and not known(move.element) for move in moves)
            tried, ended = self._steps.limits.probe, self._end_probe(acks, moves)
            if tried is not None and ended == "failed":
                self._put_last(tried, moves)
            probe = ended or self._probe_ended
            self._probe_ended = ""
            if passed or failed or probe:
                op = ops.breaker(self._steps.keys, self._rule, passed, failed, probe)
                read = op.read
                reports.append(msgspec.structs.replace(op, read=lambda reply: self._log(*read(reply))))
        return FlowReport(reports, holds, suspended, probe)

    def keep(self, reported: FlowReport) -> None:
        """Tell it with the next settlement: this one has failed."""
        self._holds.extendleft(hold._replace(is_new=False) for hold in reversed(reported.holds))
        self._suspended.extend(reported.suspended)
        self._probe_ended = reported.probe or self._probe_ended

    def hold(self, seconds: float, group: str | None) -> None:
        """Hold the queue (None) or a group, with the next settlement. Any thread."""
        self._holds.append(PendingHold(time.monotonic() + seconds, group))

    def note_suspended(self, message: Message, *, failed: bool) -> None:
        """Note that a durable handler waits: it has passed, or failed if it waits to try a step again. Any thread."""
        if self._rule is not None:
            self._suspended.append(failed)
        if message.element == self._steps.limits.probe:
            self._steps.limits.probe, self._probe_ended = None, "failed" if failed else "passed"

    def _hold_ops(self, hold: PendingHold) -> Iterator[ops.Op[Any]]:
        left, group = hold.until - time.monotonic(), hold.group
        if left <= 0:
            return
        if group is None:
            yield ops.hold(self._steps.keys, left)
            if hold.is_new:
                self.hold_others(left)
        elif group and not group.startswith(LATEST):  # else the message has no key
            yield ops.hold_key(self._steps.keys, group, left)

    def _end_probe(self, acks: Sequence[bytes], moves: Sequence[Move]) -> str:
        """End the probe if it is settled here; return how: "untried" if its handler did not run, "" if it goes on."""
        probe = self._steps.limits.probe
        if probe is None:
            return ""
        if probe in acks:
            self._steps.limits.probe = None
            return "passed"
        if (move := next((one for one in moves if one.element == probe), None)) is not None:
            self._steps.limits.probe = None
            if move.counter in _FAILED:
                return "failed"
            return "passed" if _passed(move) else "untried"
        if self._steps.has_buried(probe):
            self._steps.limits.try_another()
            return "untried"
        return ""

    def _put_last(self, probe: bytes, moves: list[Move]) -> None:
        """Let the probe go behind all other messages, uncharged: if it fails by itself, the next one is another."""
        if (message := self._steps.held.get(probe)) is not None:  # else the lease is lost
            back = Move(probe, Destination.HEAD, Counter.RELEASED, message.id, message.again())
            moves[:] = [back if move.element == probe else move for move in moves]

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
