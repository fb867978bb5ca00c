# Generated from reliq/aio/delayed.py by tools/generate_sync.py: do not edit
"""The delayed messages of a queue."""

from reliq.protocol.delayed import DelayedPage, delayed_of_queue
from reliq.protocol.partitions import Partitions
from reliq.transport.store import Store


class Delayed:
    """The delayed messages of one queue: `queue.delayed`."""

    def __init__(self, store: Store, partitions: Partitions) -> None:
        self._store = store
        self._partitions = partitions

    def list(
        self, *, limit: int = 50, after: str | None = None, failed: bool = False, bodies: bool = True
    ) -> DelayedPage:
        """Return delayed messages, due soonest first; `after` is the `next` of the page before.

        `failed`: only messages that wait for a retry; `last_error` says why. `bodies`: as in `queue.dead.list`.
        """
        return self._store.run(delayed_of_queue(self._partitions, limit, after, failed, bodies))
