# Generated from reliq/features/cycle/aio.py by tools/generate_sync.py: do not edit
"""A queue's cycle: members that are visited again and again."""

from functools import cached_property

from reliq.features.cycle.steps import CycleSteps
from reliq.protocol.queue import QueueSteps
from reliq.transport.store import Store


class Cycle:
    """The members of a queue that are visited in turn, `queue.cycle`.

        accounts.cycle.add("ann", "bob")

        @app.handler("accounts")
        def poll(message):
            look_at(message.key)
            return reliq.Again(delay=5)

    A member leaves when it is removed, when its handler returns anything else (acked), or when it dies.
    """

    def __init__(self, store: Store, steps: CycleSteps) -> None:
        self._store = store
        self._steps = steps

    def add(self, *members: str) -> int:
        """Visit these members from now on; return how many are new. Those in the cycle already keep their place.

        Raises InvalidMessage, QueueFull, RedisUnavailable. May be repeated when the outcome is unknown.
        """
        return self._store.run(self._steps.add(members))

    def remove(self, *members: str) -> int:
        """Start no further visit to these members; return how many were in the cycle."""
        return self._store.run(self._steps.remove(members))

    def members(self) -> list[str]:
        """Return the members of the cycle, sorted."""
        return self._store.run(self._steps.members())


class CycleCalls:
    """What a queue has of its cycle."""

    _store: Store
    _steps: QueueSteps

    @cached_property
    def cycle(self) -> Cycle:
        """The members that are visited in turn."""
        return Cycle(self._store, CycleSteps(self._steps.keys, self._steps.pool))
