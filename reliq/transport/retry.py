"""Retries of failed calls, and the error that the caller gets in the end.

`RedisUnavailable` is a promise: nothing was carried out. It is raised only as long as no try may have been carried
out. Once one may have been, because its reply was lost, a later refusal changes nothing: the error is `OutcomeUnknown`.
"""

import itertools
import time

from reliq.errors import OutcomeUnknown, RedisUnavailable, ReliqError
from reliq.ops import Request, Watch
from reliq.transport.calls import most_retries, only_reads, repeatable
from reliq.transport.errors import ConnectionLost, TryAgain, tls_hint

_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)  #: seconds between two tries; the last one repeats


class CallRetry:
    """The retries of one call: with growing pauses, until its time or its retries are used up."""

    def __init__(self, request: Request, where: str, until: float, watching: bool, reached: bool = True) -> None:
        """`until`: by time.monotonic(), no try begins later; `reached`: the server has answered before."""
        self._where = where
        self._reached = reached
        self._node = ""  #: the node of a cluster that failed last
        self._until = until
        self._pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        self._retries = most_retries(request)
        # Requests after a Watch belong to the watching connection: on another one they would be unguarded.
        self._watching = watching and not isinstance(request, Watch)
        self._may_repeat = repeatable(request)
        self._reads = only_reads(request)
        self._sent = False

    def after(self, failure: ConnectionLost | TryAgain) -> float:
        """Return the seconds to wait before the next try; raises the final error after the last try."""
        self._sent = self._sent or (failure.sent and not self._reads)
        self._node = failure.node
        pause = next(self._pauses)
        given_up = isinstance(failure, ConnectionLost) and failure.given_up
        loaded = isinstance(failure, TryAgain) and failure.loaded
        used_up = self._retries <= 0 and not loaded
        hopeless = given_up or self._watching or (self._sent and not self._may_repeat) or used_up
        self._retries -= not loaded
        if hopeless or time.monotonic() + pause > self._until:
            raise self._out_of_tries(failure) from None  # it says what the failure was
        return pause

    def refused(self, error: ReliqError) -> ReliqError:
        """Return the error for a repeated call that was refused for good."""
        if not self._sent or isinstance(error, OutcomeUnknown):
            return error
        return self._unknown(f"repeated, it was refused: {error}")

    def _out_of_tries(self, failure: ConnectionLost | TryAgain) -> ReliqError:
        refusal = str(failure) if isinstance(failure, TryAgain) else ""
        if self._sent:
            return self._unknown(f"repeated, it was refused temporarily: {refusal}" if refusal else "")
        if refusal:
            refused = RedisUnavailable(f"{self._server} refuses temporarily: {refusal}")
            refused.moving = isinstance(failure, TryAgain) and failure.moving
            return self._named(refused)
        hint = "" if self._reached else tls_hint(self._where, str(failure))
        return self._named(RedisUnavailable(f"{self._server} cannot be reached ({failure}{hint})"))

    def _unknown(self, more: str) -> ReliqError:
        text = f"no answer from {self._server}: the call may have been carried out, or not"
        return self._named(OutcomeUnknown(f"{text} ({more})" if more else text))

    @property
    def _server(self) -> str:
        return f"node {self._node} of the Redis Cluster" if self._node else f"Redis at {self._where}"

    def _named(self, error: ReliqError) -> ReliqError:
        error.node = self._node
        return error
