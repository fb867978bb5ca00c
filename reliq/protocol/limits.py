"""What a consumer knows of the limits of its queue, and how it claims and waits within them."""

import time
from collections.abc import Sequence
from typing import Final

from reliq import ops
from reliq.contract import values
from reliq.model.keys import QueueKeys
from reliq.ops import LimitedClaim, Move, Sleep, Steps

#: Seconds after which a consumer asks again although it was told a later time: the limits may have changed.
_ASK_AGAIN = {"rate": 5.0, "breaker": 1.0, "held": 1.0}
COUNTING: Final = 0.1  #: seconds until the next claim while another consumer counts what all of them hold
_AT_ONCE = 200  #: consumers counted in one call


class Limits:
    """The limits of a queue as one consumer has last met them. A queue without limits costs it nothing."""

    def __init__(self, keys: QueueKeys, lease: float) -> None:
        self.reports = False  #: the consumer tells the queue's circuit breaker how its messages end
        self.probe: bytes | None = None  #: the element by which an open breaker is tried
        self._keys = keys
        self._met = False
        self.suspect = ""  #: a consumer whose number of messages the next claim puts right
        self._look = min(values.SLOW_LOOK, lease / values.HEARTBEATS_PER_LEASE)
        self.idle = False  #: it has waited and was told of nothing: a claim would bring nothing
        self._look_at = 0.0  #: by time.monotonic(): when to claim although nothing was told
        self._reason: ops.Reason = ""
        self._until = 0.0  #: by time.monotonic()

    @property
    def apply(self) -> bool:
        """Whether claims have to ask for the limits."""
        return self._met or self.reports

    def note_plain(self, answer: ops.Claimed) -> bool:
        """Note the answer of a plain claim; return whether it was refused because the queue has limits."""
        refused = answer.status == "limited"
        self._met = self._met or refused
        return refused

    def left_to_claim(self, limit: int, at_once: int, answer: ops.Claimed) -> int:
        """Return how many of `limit` messages another call is to claim, after this answer to one for `at_once`.

        `at_once`: CLAIMS_NEXT if another call is to claim all of them.
        """
        claims = at_once > 0 and not self.note_plain(answer)
        if answer.status == "lost":
            return 0
        if not claims:
            return limit
        return limit - at_once if len(answer.elements) == at_once else 0

    def note(self, answer: LimitedClaim) -> None:
        """Note the answer of a claim within limits."""
        self.suspect, self.idle = answer.suspect, False
        self._look_at = time.monotonic() + self._look
        self._met = answer.status == "limited" or (self._met and answer.status == "paused")
        self._reason = answer.reason
        self._until = time.monotonic() + min(answer.wait, _ASK_AGAIN.get(answer.reason, answer.wait))
        if answer.reason == "probe":
            (self.probe,) = answer.elements

    def ask_again(self) -> None:
        """Note that tokens were given back, which the next messages may take. Thread-safe."""
        if self._reason == "rate":
            self._until = 0.0

    def try_another(self) -> None:
        """Note that the probe of a breaker ended without a run: the next claim may bring another one."""
        self.probe, self._until = None, 0.0

    def note_moves(self, moves: Sequence[Move]) -> None:
        """Note what was settled: some of it may have given tokens back."""
        if not all(move.started for move in moves):
            self.ask_again()

    def pause(self, consumer: str, timeout: float) -> Steps[bool]:
        """Wait at most `timeout` seconds; return whether a claim may bring messages now."""
        left = self._until - time.monotonic()
        if left > 0:
            yield Sleep(min(timeout, left))
            return True
        if not self.full and (yield ops.lead(self._keys, consumer, timeout)):
            told = yield ops.wait_for_messages(self._keys, timeout)
        else:
            told = yield ops.wait_for_slot(self._keys, timeout)
        self.idle = not told and time.monotonic() < self._look_at
        return not self.idle

    @property
    def awaited(self) -> str:
        """The key that exists when a claim may bring messages."""
        return self._keys.freed if self.full else self._keys.messages

    @property
    def full(self) -> bool:
        """Whether the queue has as many messages in processing as it may have."""
        return self._reason == "concurrency"

    @property
    def looks(self) -> bool:
        """Whether to claim although nothing was told: who had the slot may have ended without a word."""
        return self.full and time.monotonic() >= self._look_at

    @property
    def resting(self) -> bool:
        """Whether a claim would be told again to come later."""
        return self._until > time.monotonic()


def counted(keys: QueueKeys, counter: str) -> Steps[bool]:
    """Count what all consumers hold, after `concurrency` was set; return False if another one does."""
    cursor, begins = 0, True
    while begins or cursor:
        cursor, members = yield ops.some_consumers(keys, cursor, _AT_ONCE)
        if not (yield ops.tally(keys, members, counter, begins, ends=not cursor)):
            return False
        begins = False
    return True
