"""A lease, as its heartbeat knows it."""

from collections.abc import Callable

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.runtime.moment import Moment


class Lease:
    """One consumer's lease, as its heartbeat needs to know it."""

    __slots__ = ("consumer", "keys", "length", "renewed", "told")

    def __init__(
        self,
        keys: QueueKeys,
        consumer: str,
        length: float,
        renewed: Callable[[Moment], object] = id,
        told: Callable[[ops.Cancelled], object] = id,
    ) -> None:
        """`renewed` gets the moment at which each renewal that Redis confirmed was sent; `told` the cancelled messages
        of the queue: id, and ms of the server's clock.
        """
        self.keys = keys
        self.consumer = consumer
        self.length = length
        self.renewed = renewed
        self.told = told
