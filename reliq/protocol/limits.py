"""What a consumer knows of the limits of its queue, and how it claims and waits within them."""

import time

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import LimitedClaim, Request, Sleep

#: Seconds after which a consumer asks again although it was told a later time: the limits may have changed.
_ASK_AGAIN = {"rate": 5.0, "breaker": 1.0, "held": 1.0}


class Limits:
    """The limits of a queue as one consumer has last met them. A queue without limits costs it nothing."""

    def __init__(self, keys: QueueKeys) -> None:
        self.reports = False  #: the consumer tells the queue's circuit breaker how its messages end
        self.probe: bytes | None = None  #: the element by which an open breaker is tried
        self._keys = keys
        self._met = False
        self.others: tuple[str, ...] = ()  #: the consumers of the queue, where `concurrency` is limited
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

    def note(self, answer: LimitedClaim) -> bool:
        """Note the answer of a claim within limits; return False if it must be repeated: there are other consumers."""
        if answer.status == "consumers":
            self.others = answer.others
            return False
        self._met = answer.status == "limited" or (self._met and answer.status == "paused")
        self._reason = answer.reason
        self._until = time.monotonic() + min(answer.wait, _ASK_AGAIN.get(answer.reason, answer.wait))
        if answer.reason == "probe":
            (self.probe,) = answer.elements
        return True

    def pause(self, timeout: float) -> Request:
        """Return what to wait for, at most `timeout` seconds, before the next claim."""
        left = self._until - time.monotonic()
        if left > 0:
            return Sleep(min(timeout, left))
        if self.full:
            return ops.wait_for_slot(self._keys, timeout)
        return ops.wait_for_messages(self._keys, timeout)

    @property
    def full(self) -> bool:
        """Whether the queue has as many messages in processing as it may have."""
        return self._reason == "concurrency"

    @property
    def resting(self) -> bool:
        """Whether a claim would be told again to come later."""
        return self._until > time.monotonic()
