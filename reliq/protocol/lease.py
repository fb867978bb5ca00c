"""A lease, as its consumer and its heartbeat know it."""

from collections.abc import Callable

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.runtime.moment import Moment

_TRUSTED = 0.9  #: of a lease: for so long after a renewal its messages are surely its consumer's
_FRESH = 1 / 15  #: of a lease: for so long after a renewal calls leave it: each renewal is a write


class Trust:
    """Until when a consumer surely has its lease, and whether its next call renews it. Thread-safe."""

    def __init__(self, length: float, may_age: bool = False) -> None:
        self._length = length
        #: Calls renew the lease only after a while: a heartbeat renews it too, or nothing stays with the consumer.
        self.may_age = may_age
        self.until = Moment.never()  #: by both clocks
        self._fresh_until = Moment.never()

    def renewed(self, sent_at: Moment) -> None:
        """Note the confirmation of a renewal that was sent at `sent_at`."""
        self.until = sent_at.after(self._length * _TRUSTED)
        self._fresh_until = sent_at.after(self._length * _FRESH)

    def is_to_be_renewed(self) -> bool:
        """Return whether the next call renews the lease."""
        return not self.may_age or self._fresh_until.passed()


def _ignore(_: object) -> None:
    """Do nothing: the default of the functions that a lease calls."""


class Lease:
    """One consumer's lease, as its heartbeat needs to know it."""

    __slots__ = ("consumer", "description", "keys", "length", "renewed", "told")

    def __init__(
        self,
        keys: QueueKeys,
        consumer: str,
        length: float,
        renewed: Callable[[Moment], object] = _ignore,
        told: Callable[[ops.Told], object] = _ignore,
        description: Callable[[], bytes | None] | None = None,
    ) -> None:
        """`renewed` gets the moment at which each renewal that Redis confirmed was sent; `told` the cancelled messages
        of the queue: id, and ms of the server's clock. `description` returns that of the consumer if it has changed.
        """
        self.keys = keys
        self.consumer = consumer
        self.length = length
        self.renewed = renewed
        self.told = told
        self.description = description
