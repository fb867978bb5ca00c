"""Parts of a micro-batch beside the processing list of its consumer."""

from collections.abc import Sequence
from typing import Protocol

from reliq import ops
from reliq.model.message import Message
from reliq.ops import Steps


class BatchPart(Protocol):
    """What a micro-batch holds of one home of a queue in another place; made of the home, the consumer, the lease."""

    def count(self) -> ops.Op[int]:
        """Return the op that counts its messages; for the length of the list from which they are read."""

    def take(self, heads: Sequence[Message], room: int, *, evenly: bool) -> Steps[int]:
        """Take more, up to `room`, because the batch has claimed these; return how many it holds more than before.

        `evenly`: as many because of each, as the queue has limits.
        """

    def keep(self) -> Steps[int]:
        """Renew its lease; return how many messages it still has."""

    def cuts(self, size: int) -> Steps[list[tuple[int, int]]]:
        """Return ranges of about `size` messages, in which each run of messages of one key is whole."""

    def read(self, first: int, after: int) -> Steps[list[bytes]]:
        """Read the elements of a range, oldest first, as they were before they were taken."""

    def ack(self) -> Steps[int]:
        """Delete its messages, those that it still has; return how many."""

    def release(self) -> Steps[int]:
        """Give its messages back to the queue; return how many."""
